"""The notebook's handle on the zygote, and ranks started through it."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import threading
from dataclasses import dataclass, field
from pathlib import Path

from labkit.errors import EnvironmentProblem
from labkit.interpreter import python
from labkit.launch.processes import RankProcess, RankProcesses
from labkit.launch.zygote import STACK_SIGNAL

_SEQPACKET = getattr(socket, "SOCK_SEQPACKET", socket.SOCK_STREAM)
_END_SECONDS = 5.0
_PROGRAM = (
    f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r}); from labkit.launch.zygote import main; main()"
)
_ZYGOTE_DIED = "The process that ranks are forked from has ended, perhaps because memory ran out; run the cell again."


@dataclass
class _ZygoteHandle:
    process: subprocess.Popen[bytes]
    control: socket.socket
    errors_fd: int
    lock: threading.Lock = field(default_factory=threading.Lock)
    ready: bool = False

    def alive(self) -> bool:
        return self.process.poll() is None

    def wait_ready(self) -> None:
        with self.lock:
            if self.ready:
                return
            data = b""
            with contextlib.suppress(OSError):
                data = self.control.recv(1024)
            if not data:
                self.process.wait(5)
                said = os.pread(self.errors_fd, 4000, 0).decode(errors="replace").strip()
                raise EnvironmentProblem(f"The process that preloads torch did not start. It said: {said or 'nothing'}")
            self.ready = True

    def open_run(self) -> socket.socket:
        mine, theirs = socket.socketpair(socket.AF_UNIX, _SEQPACKET)
        with self.lock:
            socket.send_fds(self.control, [b"{}"], [theirs.fileno()])
        theirs.close()
        return mine


_handle: _ZygoteHandle | None = None
_handle_lock = threading.Lock()


def warm() -> None:
    """Start the zygote if it does not run; returns at once, it loads in the background."""
    _zygote()


def _zygote() -> _ZygoteHandle:
    global _handle
    with _handle_lock:
        if _handle is None or not _handle.alive():
            if _handle is not None:
                _handle.control.close()
                os.close(_handle.errors_fd)
            _handle = _start_zygote()
        return _handle


def _start_zygote() -> _ZygoteHandle:
    mine, theirs = socket.socketpair(socket.AF_UNIX, _SEQPACKET)
    errors_fd = os.memfd_create("labkit-zygote-errors")
    environ = dict(os.environ, PYTHONHASHSEED="0", OPENBLAS_NUM_THREADS="1")
    for name in ("MPLBACKEND", "JPY_PARENT_PID"):
        environ.pop(name, None)
    process = subprocess.Popen(
        python("-c", _PROGRAM, str(theirs.fileno())),
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=errors_fd,
        stderr=errors_fd,
        env=environ,
        start_new_session=True,
    )
    theirs.close()
    return _ZygoteHandle(process, mine, errors_fd)


@atexit.register
def _stop_zygote() -> None:
    if _handle is not None:
        _handle.control.close()
        try:
            _handle.process.wait(5)
        except subprocess.TimeoutExpired:
            _handle.process.kill()


class ForkedRanks(RankProcesses):
    """Ranks forked from the zygote."""

    def __init__(self) -> None:
        self._handle, self._socket = _open_run()
        self._ranks: list[RankProcess] = []

    def start(self, payload: bytes, world_size: int, *, record: bool) -> list[RankProcess]:
        """Fork every rank; their job and their logs are anonymous memory, so that no full disk can stop them."""
        payload_fd = os.memfd_create("labkit-job")
        try:
            view = memoryview(payload)
            while view:
                view = view[os.write(payload_fd, view) :]
            for rank in range(world_size):
                self._start_one(rank, payload_fd, record)
        finally:
            os.close(payload_fd)
        return self._ranks

    def _start_one(self, rank: int, payload_fd: int, record: bool) -> None:
        try:
            output, output_write = os.pipe()
            stacks, stacks_write = os.pipe()
            channel, channel_theirs = socket.socketpair()
            log = os.memfd_create(f"labkit-log-{rank}") if record else None
        except OSError as error:
            raise EnvironmentProblem(
                f"No pipes could be opened for rank {rank}: {error.strerror}; raise the limit on open files "
                "(ulimit -n) or use fewer ranks."
            ) from error
        log_path = f"/proc/self/fd/{log}" if log is not None else None
        self._ranks.append(RankProcess(rank, None, output, channel, stacks, log_path, log))
        theirs = [payload_fd, output_write, channel_theirs.fileno(), stacks_write] + ([log] if log is not None else [])
        try:
            socket.send_fds(self._socket, [json.dumps({"fork": rank}).encode()], theirs)
        except OSError as error:
            raise EnvironmentProblem(_ZYGOTE_DIED) from error
        finally:
            os.close(output_write)
            os.close(stacks_write)
            channel_theirs.close()

    def register(self, selector: selectors.BaseSelector) -> None:
        """Register the socket on which the zygote tells of starts and exits."""
        selector.register(self._socket, selectors.EVENT_READ, "processes")

    def read_events(self) -> None:
        """Take in one start or exit.

        Raises:
            EnvironmentProblem: If the zygote has died or could not fork.
        """
        try:
            data = self._socket.recv(4096)
        except OSError:
            data = b""
        if not data:
            raise EnvironmentProblem(_ZYGOTE_DIED)
        message = json.loads(data)
        if "forked" in message:
            self._ranks[message["forked"]].pid = message["pid"]
        elif "exited" in message:
            self._ranks[message["exited"]].status = message["status"]
        else:
            raise EnvironmentProblem(
                f"Rank {message['refused']} of {len(self._ranks)} could not be started: {message['why']}; "
                "use fewer ranks, or close other programs."
            )

    def poll(self) -> tuple[()]:
        """Do nothing: exits are announced."""
        return ()

    def ask_for_stack(self, process: RankProcess) -> None:
        """Send the signal whose handler, in C, writes the stack whatever the rank is doing."""
        if process.pid is not None and process.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, STACK_SIGNAL)

    def end(self) -> None:
        """Close the run's socket, which ends its ranks, and wait until they are gone."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        self._socket.settimeout(_END_SECONDS)
        with contextlib.suppress(OSError):
            while self._socket.recv(4096):
                pass
        self._socket.close()
        if not self._handle.alive():  # then the ranks got SIGKILL from the system; what they started did not
            for process in self._ranks:
                if process.pid is not None and process.status is None:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.killpg(process.pid, signal.SIGKILL)

    def forget(self) -> None:
        """Do nothing: the logs go with their descriptors."""


def _open_run() -> tuple[_ZygoteHandle, socket.socket]:
    for attempt in range(2):
        handle = _zygote()
        handle.wait_ready()
        try:
            return handle, handle.open_run()
        except OSError as error:
            handle.process.kill()
            handle.process.wait()
            if attempt:
                raise EnvironmentProblem(_ZYGOTE_DIED) from error
    raise AssertionError
