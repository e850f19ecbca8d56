"""Framed messages between a rank and the process that started it, over one socket."""

from __future__ import annotations

import pickle
import socket
import struct
import threading
from typing import Any

_LENGTH = struct.Struct("!Q")


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
        head = pickle.dumps((kind, value), protocol=5)
        with self._lock:
            try:
                self.sock.sendall(_LENGTH.pack(len(head)) + head)
            except (BrokenPipeError, ConnectionResetError):
                return

    def wait_for_word(self) -> bytes:
        """Return the next byte the supervisor sends, b"" when it is gone."""
        try:
            return self.sock.recv(1)
        except OSError:
            return b""


class Inbox:
    """The supervisor's end: bytes in, whole messages out."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[tuple[str, Any]]:
        """Return the messages that data completes."""
        self._data += data
        messages = []
        while len(self._data) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._data)
            end = _LENGTH.size + length
            if len(self._data) < end:
                break
            messages.append(pickle.loads(memoryview(self._data)[_LENGTH.size : end].tobytes()))
            del self._data[:end]
        return messages
