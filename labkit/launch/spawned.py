"""The entry of a rank started as a plain subprocess (see spawn.py)."""

from __future__ import annotations

import ctypes
import io
import os
import shutil
import signal
import socket
import sys
import threading
import traceback
from pathlib import Path
from types import FrameType
from typing import TextIO

from labkit.launch.channel import RankChannel
from labkit.launch.processes import LEAVE, STACK

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Read where to connect from standard input, get the job, run it, exit with its status."""
    port, token, rank_text, parent = sys.stdin.readline().split()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != int(parent):
            os._exit(70)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sock = socket.create_connection(("127.0.0.1", int(port)))
    sock.sendall(f"{token} {rank_text}".ljust(100).encode())
    log_length, payload_length = (int.from_bytes(_read(sock, 8), "big") for _ in range(2))
    log_path = _read(sock, log_length).decode() or None
    payload = _read(sock, payload_length)
    if isinstance(sys.stdout, io.TextIOWrapper) and isinstance(sys.stderr, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="replace", line_buffering=True)
        sys.stderr.reconfigure(encoding="utf-8", errors="backslashreplace", write_through=True)

    from labkit.launch.job import unpack
    from labkit.launch.worker import run_rank

    channel = ListeningChannel(sock, threading.main_thread().ident or 0, log_path)
    with _stack_file(log_path) as stacks:
        status = run_rank(int(rank_text), unpack(payload), channel, stacks, log_path)
        os._exit(status)


def _stack_file(log_path: str | None) -> TextIO:
    """Open where a fatal signal writes the Python stack: beside the log, or standard error where there is none."""
    try:
        return open(f"{log_path}.stack", "w") if log_path is not None else sys.stderr
    except OSError:
        return sys.stderr


def _read(sock: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        more = sock.recv(min(count - len(data), 1 << 20))
        if not more:
            os._exit(70)
        data += more
    return bytes(data)


class ListeningChannel(RankChannel):
    """A rank's channel with a thread that answers while the rank computes or is blocked.

    The thread sends the stack when asked, and ends this process, with what it started, when the notebook is gone.
    """

    def __init__(self, sock: socket.socket, main_thread: int, log_path: str | None) -> None:
        super().__init__(sock)
        self._main_thread = main_thread
        self._log_path = log_path
        self._leave = threading.Event()
        threading.Thread(target=self._listen, name="labkit-listener", daemon=True).start()

    def wait_for_word(self) -> bytes:
        """Return when all ranks are done."""
        self._leave.wait()
        return LEAVE

    def _listen(self) -> None:
        while True:
            try:
                word = self.sock.recv(1)
            except OSError:
                word = b""
            if word == STACK:
                self.send("stack", _stack_text(sys._current_frames().get(self._main_thread)))
            elif word == LEAVE:
                self._leave.set()
            else:
                break
        if not self._leave.is_set():
            self._end()

    def _end(self) -> None:
        if self._log_path is not None:
            shutil.rmtree(Path(self._log_path).parent, ignore_errors=True)
        if hasattr(os, "killpg"):
            os.killpg(0, signal.SIGKILL)
        os._exit(70)


def _stack_text(frame: FrameType | None) -> str:
    """Return a stack the way faulthandler writes it: innermost first."""
    lines = [
        f'  File "{summary.filename}", line {summary.lineno} in {summary.name}'
        for summary in reversed(traceback.extract_stack(frame))
    ]
    return "\n".join(["Stack (most recent call first):", *lines, ""])
