"""Messages between a rank and the process that started it, or two hosts of one run: a kind and any value, pickled."""

from __future__ import annotations

import pickle
import socket
import threading
from typing import Any

from labkit.frames import Cutter, head


def message(kind: str, value: Any = None) -> bytes:
    """Return the frame of one message."""
    data = pickle.dumps((kind, value), protocol=5)
    return head(b"", len(data)) + data


class RankChannel:
    """The rank's end: sends what it has, waits for the word to end.

    Message kinds: ``hello`` (the rank has loaded what it needs), ``result`` (bytes of the pickled value), ``error``
    (what worker.describe_error made), ``stack`` (text, where stacks cannot be had by a signal), ``flight`` (the calls
    on torch's own record).
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._lock = threading.Lock()

    def send(self, kind: str, value: Any = None) -> None:
        """Send one message; a supervisor that is gone is not this rank's worry."""
        data = message(kind, value)
        with self._lock:
            try:
                self.sock.sendall(data)
            except (BrokenPipeError, ConnectionResetError):
                return

    def wait_for_word(self) -> bytes:
        """Return the next byte the supervisor sends, b"" when it is gone."""
        try:
            return self.sock.recv(1)
        except OSError:
            return b""


class Inbox:
    """The receiving end: bytes in, whole messages out. Only who is trusted may write them."""

    def __init__(self) -> None:
        self._cutter = Cutter()

    def feed(self, data: bytes) -> list[tuple[str, Any]]:
        """Return the messages that data completes."""
        return [pickle.loads(payload) for _, payload in self._cutter.feed(data)]
