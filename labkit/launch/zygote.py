"""The preloaded process that ranks are forked from.

It is started once with exec, imports torch, never touches CUDA and stays single-threaded, so that a fork of it is
always safe. Each run talks to it over a socket of its own: end-of-file on that socket, however it comes about, ends
that run's ranks.

Messages are JSON, one per SOCK_SEQPACKET record. On the first socket the notebook sends ``{}`` with one descriptor, a
run's socket. On that it sends ``{"fork": rank}`` with the descriptors payload, output, channel, stacks and, where there
is one, log; the answer is ``{"forked": rank, "pid": pid}`` and, later, ``{"exited": rank, "status": code}``, or
``{"refused": rank, "why": text}``.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import importlib
import io
import json
import mmap
import os
import selectors
import signal
import socket
import sys
import traceback
from pathlib import Path

STACK_SIGNAL = signal.SIGRTMIN + 7 if sys.platform == "linux" else 0
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


PRELOADED = (
    "cloudpickle",
    "numpy",
    "numpy.ctypeslib",
    "torch",
    "torch.distributed",
    "torch.nn.parallel",
    "torch.optim",
    "torch.utils.data",
    "torch.utils.serialization",
    "labkit.torch_port.preload",
    "labkit.torch_port.meeting",
    "labkit.torch_port.stores",
    "labkit.launch.worker",
    "labkit.launch.recording.gatherings",
    "labkit.launch.recording.recorded_group",
    "labkit.checks.on_ranks.groups",
    "labkit.checks.rank_side",
    "labkit.checks.values",
)
"""What every rank, or every rank of a check, would import anyway: loaded once, before the first fork."""


def _preload() -> None:
    gc.disable()  # nothing that is loaded is given up again, and looking for it takes a tenth of the time
    for name in PRELOADED:
        importlib.import_module(name)
    if importlib.import_module("torch.distributed.rpc").is_available():
        importlib.import_module("labkit.launch.recording.remote_calls")
    _rehearse()
    gc.freeze()  # nor will ranks look: its memory is shared until they write to it
    gc.enable()


def _rehearse() -> None:
    """Do once what every rank does first, so that its lazy part is done before the fork; too small for any thread."""
    import numpy as np
    import torch

    from labkit.launch import by_value

    np.random.seed(0)
    torch.manual_seed(0)
    by_value.dumps(torch.ones(2) + torch.tensor([1.0]).item())


class Zygote:
    """Forks ranks, reaps them, and ends those whose run is over."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._parent = os.getppid()
        self._selector = selectors.DefaultSelector()
        self._ranks: dict[int, tuple[socket.socket, int]] = {}
        self._wakeup_read, self._wakeup_write = os.pipe()

    def serve(self) -> None:
        """Serve until the process that started this one is gone."""
        os.set_blocking(self._wakeup_write, False)
        os.set_blocking(self._wakeup_read, False)
        signal.set_wakeup_fd(self._wakeup_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(self._control, selectors.EVENT_READ)
        self._selector.register(self._wakeup_read, selectors.EVENT_READ)
        self._control.send(json.dumps({"ready": os.getpid()}).encode())
        while os.getppid() == self._parent:
            for key, _ in self._selector.select(1.0):
                if key.fileobj == self._wakeup_read:
                    self._reap()
                elif key.fileobj is self._control:
                    if not self._accept_run():
                        return
                elif isinstance(key.fileobj, socket.socket):
                    self._serve_run(key.fileobj)

    def end_everything(self) -> None:
        """Kill every rank and whatever descends from it."""
        for pid in list(self._ranks):
            _kill_group(pid)
        while self._kill_orphans() or self._ranks:
            try:
                pid, _ = os.wait()
            except ChildProcessError:
                return
            self._ranks.pop(pid, None)

    def _accept_run(self) -> bool:
        data, fds, _, _ = socket.recv_fds(self._control, 1024, 1)
        if not data:
            return False
        run = socket.socket(fileno=fds[0])
        self._selector.register(run, selectors.EVENT_READ)
        return True

    def _serve_run(self, run: socket.socket) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(run, 1 << 16, 8)
        except OSError:
            data, fds = b"", []
        if not data:
            self._selector.unregister(run)
            mine = [pid for pid, (owner, _) in self._ranks.items() if owner is run]
            for pid in mine:
                _kill_group(pid)
            if not mine:
                run.close()
            return
        rank = json.loads(data)["fork"]
        try:
            pid = os.fork()
        except OSError as error:
            self._tell(run, {"refused": rank, "why": error.strerror})
            pid = -1
        if pid == 0:
            self._become_rank(rank, fds)
        for fd in fds:
            os.close(fd)
        if pid > 0:
            self._ranks[pid] = (run, rank)
            self._tell(run, {"forked": rank, "pid": pid})

    def _reap(self) -> None:
        try:
            os.read(self._wakeup_read, 4096)
        except BlockingIOError:
            pass
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                break
            if pid not in self._ranks:
                continue
            run, rank = self._ranks.pop(pid)
            _kill_group(pid)  # what the rank left behind: DataLoader workers
            self._tell(run, {"exited": rank, "status": os.waitstatus_to_exitcode(status)})
            if not any(owner is run for owner, _ in self._ranks.values()) and run not in self._open_runs():
                run.close()
        self._kill_orphans()

    def _open_runs(self) -> list[object]:
        return [key.fileobj for key in self._selector.get_map().values()]

    def _tell(self, run: socket.socket, message: dict[str, object]) -> None:
        try:
            run.send(json.dumps(message).encode())
        except OSError:
            return

    def _kill_orphans(self) -> bool:
        """Kill what a dead rank left in a session of its own; it became this process's child."""
        found = False
        for task in Path("/proc/self/task").iterdir():
            for word in (task / "children").read_text().split():
                if int(word) not in self._ranks:
                    found = True
                    try:
                        os.kill(int(word), signal.SIGKILL)
                    except ProcessLookupError:
                        continue
        return found

    def _become_rank(self, rank: int, fds: list[int]) -> None:
        try:
            zygote = os.getppid()
            os.setpgid(0, 0)
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
            if os.getppid() != zygote:
                os._exit(70)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Jupyter interrupts every process; the notebook decides
            for key in list(self._selector.get_map().values()):
                if isinstance(key.fileobj, socket.socket):
                    key.fileobj.close()
            self._selector.close()
            for run, _ in self._ranks.values():
                run.close()
            os.close(self._wakeup_read)
            os.close(self._wakeup_write)
            status = _run_forked_rank(rank, fds)
        except BaseException:
            traceback.print_exc()
            status = 70
        finally:
            os._exit(status)


def _run_forked_rank(rank: int, fds: list[int]) -> int:

    from labkit.launch.channel import RankChannel
    from labkit.launch.job import unpack
    from labkit.launch.worker import run_rank

    payload_fd, output_fd, channel_fd, stacks_fd, *log = fds
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(output_fd, 1)
    os.dup2(output_fd, 2)
    for fd in (null, output_fd):
        os.close(fd)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115  # it stays open for as long as the rank lives
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "wb", False)), "utf-8", "replace", line_buffering=True)
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(2, "wb", False)),
        "utf-8",
        "backslashreplace",
        line_buffering=True,
        write_through=True,
    )
    stacks = os.fdopen(stacks_fd, "w")
    faulthandler.register(STACK_SIGNAL, stacks, all_threads=False)
    with mmap.mmap(payload_fd, 0, prot=mmap.PROT_READ) as payload:
        job = unpack(payload)
    os.close(payload_fd)
    channel = RankChannel(socket.socket(fileno=channel_fd))
    return run_rank(rank, job, channel, stacks, f"/proc/self/fd/{log[0]}" if log else None)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def main() -> None:
    """Serve on the socket whose descriptor is the first argument."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    control = socket.socket(fileno=int(sys.argv[1]))
    _preload()
    zygote = Zygote(control)
    try:
        zygote.serve()
    finally:
        zygote.end_everything()
    os._exit(0)  # to take apart what was loaded takes a third of a second


if __name__ == "__main__":
    main()
