"""Frames: a JSON header and raw bytes over a stream socket, in both directions of the trust line.

What arrives is data from a process that may be hostile: lengths are checked before anything is read, the header is
parsed as JSON and nothing is ever unpickled or evaluated.
"""

from __future__ import annotations

import json
import socket
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from labkit.frames import LENGTHS, Cutter, check_lengths, head
from labkit.frames import FrameError as FrameError

_READ_BYTES = 1 << 18


@dataclass(frozen=True)
class Frame:
    """One message: a small JSON object and the bytes that go with it."""

    header: dict[str, Any]
    payload: bytes | bytearray | memoryview = b""


def pack(header: Mapping[str, Any], payload: bytes | bytearray | memoryview = b"") -> bytes:
    """Return the bytes that go before the payload on the wire."""
    text = json.dumps(header, separators=(",", ":")).encode()
    return head(text, memoryview(payload).nbytes)


def write_frame(sock: socket.socket, header: Mapping[str, Any], payload: bytes | bytearray | memoryview = b"") -> None:
    """Send one frame on a blocking socket."""
    first = pack(header, payload)
    if len(payload) == 0:
        sock.sendall(first)
    elif memoryview(payload).nbytes < 1 << 16:
        sock.sendall(first + bytes(payload))
    else:
        sock.sendall(first)
        sock.sendall(payload)


def read_frame(sock: socket.socket, *, max_header: int = 1 << 26, max_payload: int = 1 << 33) -> Frame | None:
    """Return the next frame of a blocking socket, or None where the other side has closed it.

    Raises:
        FrameError: If a length passes its limit or the header is not a JSON object.
    """
    lengths = _read_exactly(sock, LENGTHS.size)
    if lengths is None:
        return None
    header_bytes, payload_bytes = LENGTHS.unpack(lengths)
    check_lengths(header_bytes, payload_bytes, max_header, max_payload)
    text = _read_exactly(sock, header_bytes)
    payload = _read_exactly(sock, payload_bytes)
    if text is None or payload is None:
        return None
    return Frame(_parse(text), payload)


class Channel:
    """One end of a socket that is never waited on: frames are collected as they come and sent as space allows.

    Args:
        sock: A connected stream socket; it is made non-blocking.
        max_header: Most bytes a header may have.
        max_payload: Most bytes a payload may have.
    """

    def __init__(self, sock: socket.socket, *, max_header: int, max_payload: int) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.closed = False
        self._cutter = Cutter(max_header, max_payload)
        self._outgoing: deque[memoryview] = deque()

    def fileno(self) -> int:
        """Return the descriptor, as selectors want it."""
        return self.sock.fileno()

    @property
    def wants_to_write(self) -> bool:
        """Whether frames wait for space in the socket."""
        return bool(self._outgoing) and not self.closed

    def send(self, header: Mapping[str, Any], payload: bytes | bytearray | memoryview = b"") -> None:
        """Queue a frame and send what fits now."""
        self._outgoing.append(memoryview(pack(header, payload)))
        if len(payload):
            self._outgoing.append(memoryview(payload).cast("B"))
        self.flush()

    def flush(self) -> None:
        """Send what fits; a closed other end is noticed when reading."""
        while self._outgoing and not self.closed:
            try:
                sent = self.sock.send(self._outgoing[0])
            except BlockingIOError:
                return
            except OSError:
                self._outgoing.clear()
                return
            if sent == len(self._outgoing[0]):
                self._outgoing.popleft()
            else:
                self._outgoing[0] = self._outgoing[0][sent:]

    def receive(self, budget_bytes: int = 1 << 23) -> list[Frame]:
        """Return the frames that have come completely; sets ``closed`` at end of file.

        Args:
            budget_bytes: Most bytes taken from the socket in this call, so that one flooding peer cannot keep the
                others waiting.
        Raises:
            FrameError: If a length passes its limit or a header is not a JSON object.
        """
        frames: list[Frame] = []
        while budget_bytes > 0 and not self.closed:
            try:
                data = self.sock.recv(max(_READ_BYTES, min(self._cutter.missing, 1 << 22)))
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.closed = True
                break
            budget_bytes -= len(data)
            frames += [Frame(_parse(text), payload) for text, payload in self._cutter.feed(data)]
        return frames

    def close(self) -> None:
        """Close the socket; what was queued is dropped."""
        self.closed = True
        self._outgoing.clear()
        self.sock.close()


def _parse(text: bytes | bytearray) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"a header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise FrameError("a header is not a JSON object")
    return header


def _read_exactly(sock: socket.socket, count: int) -> bytearray | None:
    data = bytearray(count)
    view = memoryview(data)
    while len(view):
        try:
            got = sock.recv_into(view)
        except ConnectionResetError:
            return None
        if not got:
            return None
        view = view[got:]
    return data
