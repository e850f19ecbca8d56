"""Calls of a sandbox that take a number which the system counts for the whole machine: only so many of them are made.

Who makes a pipe or a socket sees from its inode how many others have been made, whoever made them, and so hears what
another sandbox tells by making some. Inodes are given to processors by the thousand; a rank that can make a few
hundred tells and hears next to nothing, and a notebook's kernel, which starts ranks of its own, a dozen bits in all.
seccomp(2) holds each such call until a process outside, which counts them, lets it go on. Linux 5.5 and libseccomp 2.5;
elsewhere nothing is counted.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import struct
from contextlib import suppress

MOST = 256
"""How many such calls a rank makes in all; an event loop takes one, a process with pipes four."""
MOST_OF_KERNEL = 30_000
"""How many a kernel makes with all that it starts."""
_RECEIVE, _SEND, _CONTINUE = 0xC0502100, 0xC0182101, 1
_ASKED, _ANSWER = 80, struct.Struct("=QqiI")
"""Size of struct seccomp_notif, which begins with the call's id, and struct seccomp_notif_resp."""


class CountedCalls:
    """Those of one sandbox.

    Args:
        listener: The descriptor on which its calls ask; closed by `close`.
        most: How many it may make.
    """

    def __init__(self, listener: int, most: int = MOST) -> None:
        self._listener, self._most, self._made = listener, most, 0

    def fileno(self) -> int:
        """Return what to wait on."""
        return self._listener

    def answer(self) -> bool:
        """Let one call go on, or say that there are too many open files; return False where nobody is left to ask."""
        asked = bytearray(_ASKED)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, asked)
        except OSError as error:  # who asked has ended meanwhile: it alone, or all
            return error.errno == errno.EINTR or not self._ended()
        self._made += 1
        identity = int.from_bytes(asked[:8], "little")
        error_number, flags = (0, _CONTINUE) if self._made <= self._most else (-errno.EMFILE, 0)
        with suppress(OSError):
            fcntl.ioctl(self._listener, _SEND, _ANSWER.pack(identity, 0, error_number, flags))
        return True

    def _ended(self) -> bool:
        poller = select.poll()
        poller.register(self._listener, 0)
        return any(event & select.POLLHUP for _, event in poller.poll(0))

    def close(self) -> None:
        """Let go of it; calls that still ask say that they are not there."""
        os.close(self._listener)
