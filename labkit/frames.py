"""Frames on a stream: two lengths, a header, a payload. Their users say what these hold and whether it is trusted."""

from __future__ import annotations

import struct

LENGTHS = struct.Struct("<IQ")


class FrameError(Exception):
    """The other side broke the frame format or a limit; the message says how."""


def head(header: bytes, payload_bytes: int) -> bytes:
    """Return what goes before the payload on the wire."""
    return LENGTHS.pack(len(header), payload_bytes) + header


def check_lengths(header_bytes: int, payload_bytes: int, max_header: int, max_payload: int) -> None:
    """Return if a frame of these lengths is taken.

    Raises:
        FrameError: If it is not.
    """
    if header_bytes > max_header:
        raise FrameError(f"a header of {header_bytes} bytes came; at most {max_header} are taken")
    if payload_bytes > max_payload:
        raise FrameError(f"a payload of {payload_bytes} bytes came; at most {max_payload} are taken")


class Cutter:
    """Takes bytes as they come and gives whole frames.

    Args:
        max_header: Most bytes a header may have.
        max_payload: Most bytes a payload may have.
    """

    def __init__(self, max_header: int = 1 << 31, max_payload: int = 1 << 62) -> None:
        self._limits = (max_header, max_payload)
        self._data = bytearray()
        self._wanted = LENGTHS.size
        self._lengths: tuple[int, int] | None = None

    @property
    def missing(self) -> int:
        """How many bytes are still to come of what has begun."""
        return self._wanted - len(self._data)

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Return header and payload of each frame that these bytes complete.

        Raises:
            FrameError: If a length passes its limit; it is looked at before the rest has come.
        """
        self._data += data
        frames: list[tuple[bytes, bytes]] = []
        start = 0
        while len(self._data) - start >= self._wanted:
            if self._lengths is None:
                header_bytes, payload_bytes = LENGTHS.unpack_from(self._data, start)
                check_lengths(header_bytes, payload_bytes, *self._limits)
                self._lengths = header_bytes, payload_bytes
                start += LENGTHS.size
                self._wanted = header_bytes + payload_bytes
                continue
            middle, end = start + self._lengths[0], start + self._wanted
            with memoryview(self._data) as view:
                frames.append((bytes(view[start:middle]), bytes(view[middle:end])))
            start, self._lengths, self._wanted = end, None, LENGTHS.size
        if start:
            del self._data[:start]
        return frames
