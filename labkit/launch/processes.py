"""Started ranks, whatever started them."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from labkit.launch.cgroup import OomCount, oom_kills
from labkit.launch.recording import RankLog, read_log
from labkit.launch.watchdog import cpu_seconds

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
        output: What it prints comes out here: a descriptor, or a socket where pipes cannot be waited for. None where
            what started the rank brings it (see Arrival), as from another host.
        channel: Socket for its messages and for words to it, or None as above.
        stacks: Descriptor that its Python stack comes out of when asked, or None.
        log_path: Where it records its communication, or None.
        log_fd: Descriptor that keeps the log alive, or None.
        status: Exit status, negative for a signal, None while it lives.
        host: Name of the host it runs on, "" for this one.
    """

    rank: int
    pid: int | None
    output: int | socket.socket | None
    channel: socket.socket | None
    stacks: int | None = None
    log_path: str | None = None
    log_fd: int | None = None
    status: int | None = None
    host: str = ""

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
        assert self.channel is not None
        with contextlib.suppress(OSError):
            self.channel.sendall(word)

    def read_log(self) -> RankLog | None:
        """Return what it has recorded until now, None where there is no log."""
        if self.log_path is None:
            return None
        log = read_log(self.log_path)
        return None if log.missing else log

    def cpu_seconds(self) -> float | None:
        """Return the CPU time it has used, None where that is not known."""
        return cpu_seconds(self.pid) if self.pid is not None else None

    def oom_kills(self) -> OomCount | None:
        """Return how often its host ended processes for memory."""
        return oom_kills()

    def on_one_clock(self, log: RankLog) -> RankLog:
        """Return its log with times of one clock for all ranks of the run."""
        return log

    def here_seconds(self, time: float) -> float:
        """Return a time of its monotonic clock on one clock for all ranks of the run."""
        return time

    def close(self) -> None:
        """Close every end."""
        for end in (self.output, self.channel, self.stacks, self.log_fd):
            if isinstance(end, socket.socket):
                end.close()
            elif end is not None:
                os.close(end)


Arrival = tuple[RankProcess, str, bytes]
"""What a rank sent, where whoever started it brings it: the rank, which end ("output", "channel", "stacks"), the bytes;
no bytes are the end of that end."""


class RankProcesses(ABC):
    """How a start method starts, watches and ends ranks."""

    settle_echo = 0.8
    """After an error that only says that a peer went away, seconds to wait for what became of that peer."""

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
    def poll(self) -> Sequence[Arrival]:
        """Note exits that nothing announces; return what ranks sent that has no end of its own here."""

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
