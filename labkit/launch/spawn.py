"""Ranks as plain subprocesses: for systems where a fork is missing (Windows) or unsafe (macOS).

Each rank is a fresh Python that connects back over loopback, shows the token it was given, and gets its job. It costs
an ``import torch`` per rank. Nothing here needs Unix, so that it can be tried, as a test does, on Linux.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import warnings
from pathlib import Path

import psutil

from labkit.errors import EnvironmentProblem
from labkit.interpreter import python
from labkit.launch.processes import STACK, RankProcess, RankProcesses

_CONNECT_SECONDS = 180.0
_END_SECONDS = 5.0


class SpawnedRanks(RankProcesses):
    """Ranks started with subprocess."""

    def __init__(self) -> None:
        self._children: list[subprocess.Popen[bytes]] = []
        self._ranks: list[RankProcess] = []
        self._threads: list[threading.Thread] = []
        self._folder: Path | None = None

    def start(self, payload: bytes, world_size: int, *, record: bool) -> list[RankProcess]:
        """Start every rank, hand each its job, and return them.

        Raises:
            EnvironmentProblem: If a rank ends before it has connected, or does not connect in time.
        """
        if record:
            self._folder = _log_folder()
        token = secrets.token_hex(16)
        with socket.create_server(("127.0.0.1", 0), backlog=world_size) as listener:
            listener.settimeout(0.2)
            for rank in range(world_size):
                self._children.append(_start_child(rank, listener.getsockname()[1], token))
            channels = self._accept_all(listener, token, world_size)
        for rank, child in enumerate(self._children):
            log = str(self._folder / f"rank{rank}.log") if self._folder is not None else None
            self._ranks.append(RankProcess(rank, child.pid, self._pump_output(child), channels[rank], None, log))
        for process in self._ranks:
            name = (process.log_path or "").encode()
            process.tell(len(name).to_bytes(8, "big") + len(payload).to_bytes(8, "big") + name + payload)
        return self._ranks

    def _accept_all(self, listener: socket.socket, token: str, world_size: int) -> dict[int, socket.socket]:
        found: dict[int, socket.socket] = {}
        until = time.monotonic() + _CONNECT_SECONDS
        while len(found) < world_size:
            for rank, child in enumerate(self._children):
                if rank not in found and child.poll() is not None:
                    assert child.stdout is not None
                    said = child.stdout.read(4000).decode(errors="replace").strip()
                    raise EnvironmentProblem(
                        f"Rank {rank} ended with status {child.returncode} before it could begin. It said: {said}"
                    )
            if time.monotonic() > until:
                missing = sorted(set(range(world_size)) - set(found))
                raise EnvironmentProblem(
                    f"Ranks {missing} did not start within {_CONNECT_SECONDS:g} s; use fewer ranks, or close other "
                    "programs."
                )
            try:
                channel, _ = listener.accept()
            except TimeoutError:
                continue
            channel.settimeout(5.0)
            with contextlib.suppress(OSError, ValueError):
                shown, _, rank_text = channel.recv(100, socket.MSG_WAITALL).decode().strip().partition(" ")
                if secrets.compare_digest(shown, token):
                    channel.settimeout(None)
                    found[int(rank_text)] = channel
                    continue
            channel.close()
        return found

    def _pump_output(self, child: subprocess.Popen[bytes]) -> socket.socket:
        """Return a socket that carries what the child prints: pipes cannot be waited for everywhere."""
        mine, theirs = socket.socketpair()
        thread = threading.Thread(target=_copy_output, args=(child, theirs), daemon=True)
        thread.start()
        self._threads.append(thread)
        return mine

    def register(self, selector: selectors.BaseSelector) -> None:
        """Register nothing: exits are polled for."""

    def read_events(self) -> None:
        """Do nothing: there are no announcements."""

    def poll(self) -> tuple[()]:
        """Note which ranks have exited."""
        for process, child in zip(self._ranks, self._children, strict=False):
            if process.status is None:
                process.status = child.poll()
        return ()

    def ask_for_stack(self, process: RankProcess) -> None:
        """Ask the thread that listens in the rank."""
        process.tell(STACK)

    def fatal_stack(self, process: RankProcess) -> str:
        """Return what faulthandler wrote beside the log before a signal ended the rank."""
        if process.log_path is None:
            return ""
        with contextlib.suppress(OSError):
            return Path(f"{process.log_path}.stack").read_text(errors="replace")
        return ""

    def end(self) -> None:
        """Kill every rank with all that descends from it, and wait."""
        for child in self._children:
            for process in _descendants(child.pid):
                with contextlib.suppress(psutil.Error):
                    process.kill()
            if hasattr(os, "killpg"):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.pid, signal.SIGKILL)
            child.kill()
        for child in self._children:
            child.wait(_END_SECONDS)
        self.poll()

    def forget(self) -> None:
        """Remove the logs and the threads that carried output."""
        for thread in self._threads:
            thread.join(_END_SECONDS)
        for child in self._children:
            if child.stdout is not None:
                child.stdout.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _start_child(rank: int, port: int, token: str) -> subprocess.Popen[bytes]:
    root = str(Path(__file__).parents[2])
    code = f"import sys; sys.path.insert(0, {root!r}); from labkit.launch.spawned import main; main()"
    child = subprocess.Popen(
        python("-c", code),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=dict(os.environ, PYTHONHASHSEED="0"),
        start_new_session=hasattr(os, "killpg"),
    )
    assert child.stdin is not None
    with contextlib.suppress(OSError), child.stdin as pipe:
        pipe.write(f"{port} {token} {rank} {os.getpid()}\n".encode())
    return child


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.Error:
        return []


def _copy_output(child: subprocess.Popen[bytes], target: socket.socket) -> None:
    assert child.stdout is not None
    with target, contextlib.suppress(OSError):
        while data := os.read(child.stdout.fileno(), 1 << 16):
            target.sendall(data)


def _log_folder() -> Path | None:
    try:
        return Path(tempfile.mkdtemp(prefix="labkit-"))
    except OSError as error:
        warnings.warn(
            f"This run has no timeline: no folder for it can be made in {tempfile.gettempdir()} ({error.strerror}). "
            "Free some space, or point TMPDIR at a folder that has some.",
            stacklevel=6,
        )
        return None
