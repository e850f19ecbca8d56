"""Started ranks, whatever started them."""

from __future__ import annotations

import os
import selectors
import socket
from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass
class RankProcess:
    """One started rank and the ends that reach it.

    Attributes:
        rank: Its rank.
        pid: Its process, None until it is known.
        output: Descriptor that what it prints comes out of.
        channel: Socket for its messages and for the word to end.
        stacks: Descriptor that its Python stack comes out of when asked, or None.
        log_path: Where it records its communication, or None.
        log_fd: Descriptor that keeps the log alive, or None.
        status: Exit status, negative for a signal, None while it lives.
    """

    rank: int
    pid: int | None
    output: int
    channel: socket.socket
    stacks: int | None
    log_path: str | None
    log_fd: int | None
    status: int | None = None

    def close(self) -> None:
        """Close every end."""
        os.close(self.output)
        self.channel.close()
        for fd in (self.stacks, self.log_fd):
            if fd is not None:
                os.close(fd)


class RankProcesses(ABC):
    """How a start method starts, watches and ends ranks."""

    @abstractmethod
    def start(self, payload: bytes, world_size: int, record: bool) -> list[RankProcess]:
        """Start every rank on this packed job."""

    @abstractmethod
    def register(self, selector: selectors.BaseSelector) -> None:
        """Register what announces starts and exits, with data ``"processes"``."""

    @abstractmethod
    def read_events(self) -> None:
        """Take in one announcement."""

    @abstractmethod
    def ask_for_stack(self, process: RankProcess) -> None:
        """Ask a rank for its Python stack; it arrives on its stacks descriptor or channel."""

    @abstractmethod
    def end(self) -> None:
        """End every rank that lives, with everything it started; returns when they are gone."""
