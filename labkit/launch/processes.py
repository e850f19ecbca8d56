"""Started ranks, whatever started them."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
from abc import ABC, abstractmethod
from dataclasses import dataclass

LEAVE = b"l"
"""Word to a rank that all are done: destroy the group and end."""
STACK = b"s"
"""Word to a rank to send its Python stack, where there is no signal for it."""

_CHUNK = 1 << 18


@dataclass
class RankProcess:
    """One started rank and the ends that reach it.

    Attributes:
        rank: Its rank.
        pid: Its process, None until it is known.
        output: What it prints comes out here: a descriptor, or a socket where pipes cannot be waited for.
        channel: Socket for its messages and for words to it.
        stacks: Descriptor that its Python stack comes out of when asked, or None.
        log_path: Where it records its communication, or None.
        log_fd: Descriptor that keeps the log alive, or None.
        status: Exit status, negative for a signal, None while it lives.
    """

    rank: int
    pid: int | None
    output: int | socket.socket
    channel: socket.socket
    stacks: int | None = None
    log_path: str | None = None
    log_fd: int | None = None
    status: int | None = None

    def read(self, end: object) -> bytes:
        """Return what is there to read at one of this rank's ends, b"" at its end."""
        if isinstance(end, int):
            return os.read(end, _CHUNK)
        assert isinstance(end, socket.socket)
        try:
            return end.recv(_CHUNK)
        except ConnectionError:
            return b""

    def tell(self, word: bytes) -> None:
        """Send the rank one word; a rank that is gone needs none."""
        with contextlib.suppress(OSError):
            self.channel.sendall(word)

    def close(self) -> None:
        """Close every end."""
        self.channel.close()
        for end in (self.output, self.stacks, self.log_fd):
            if isinstance(end, socket.socket):
                end.close()
            elif end is not None:
                os.close(end)


class RankProcesses(ABC):
    """How a start method starts, watches and ends ranks."""

    @abstractmethod
    def start(self, payload: bytes, world_size: int, *, record: bool) -> list[RankProcess]:
        """Start every rank on this packed job."""

    @abstractmethod
    def register(self, selector: selectors.BaseSelector) -> None:
        """Register what announces starts and exits, if anything does, with data ``"processes"``."""

    @abstractmethod
    def read_events(self) -> None:
        """Take in one announcement."""

    @abstractmethod
    def poll(self) -> None:
        """Note exits that nothing announces."""

    @abstractmethod
    def ask_for_stack(self, process: RankProcess) -> None:
        """Ask a rank for its Python stack; it arrives at its stacks end or as a message."""

    def fatal_stack(self, process: RankProcess) -> str:
        """Return what a rank's fatal signal handler wrote, where that does not come out of its stacks end."""
        return ""

    @abstractmethod
    def end(self) -> None:
        """End every rank that lives, with everything it started; returns when they are gone."""

    @abstractmethod
    def forget(self) -> None:
        """Give back what belongs to the run once its logs have been read."""
