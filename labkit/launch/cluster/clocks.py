"""Clocks of several hosts made one: round trips before and after a run, and a straight line between them.

A host's clock is compared with that of the run's first host, over the network that the ranks use. Of many round trips
the shortest counts: when the other clock was read lies between its two ends, so half of it is the most by which the
comparison can be wrong. Between the comparisons the difference is taken to change evenly.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from labkit.launch.cluster.link import read_exactly
from labkit.launch.recording import RankLog

ROUND_TRIPS = 40
_TIME = struct.Struct("!q")
_DRIFT = 5e-4
"""How fast two clocks may part where they were compared once only: what NTP allows itself when it slews a clock."""


@dataclass(frozen=True)
class Comparison:
    """One look at two clocks.

    Attributes:
        at_ns: When, on the host's own clock.
        offset_ns: What to add to the host's clock to have that of the first host.
        error_ns: By how much that may be wrong: half the round trip.
    """

    at_ns: int
    offset_ns: int
    error_ns: int


@dataclass(frozen=True)
class Clock:
    """A host's clock and how to read it as that of the first host.

    Attributes:
        before: The comparison before the run.
        after: The one after it, None while it runs, or where it could not be made any more.
    """

    before: Comparison
    after: Comparison | None = None

    def shift_ns(self, at_ns: int) -> int:
        """Return what to add to a time of this clock, on a straight line through both comparisons."""
        first, last = self.before, self.after
        if last is None or last.at_ns <= first.at_ns:
            return first.offset_ns
        # Whole numbers throughout: as a float, a clock that has run for months is off by more than the round trip.
        return first.offset_ns + (last.offset_ns - first.offset_ns) * (at_ns - first.at_ns) // (
            last.at_ns - first.at_ns
        )

    def error_ns(self, until_ns: int) -> int:
        """Return by how much a time of the run, which lasted until then on this clock, may be wrong."""
        if self.after is not None:
            return max(self.before.error_ns, self.after.error_ns)
        return self.before.error_ns + round(_DRIFT * max(0, until_ns - self.before.at_ns))

    def method(self, host: str) -> str:
        """Return how the times came about, in words."""
        if self.before.error_ns == 0:
            return f"CLOCK_MONOTONIC of {host}"
        how = "before and after" if self.after is not None else "before"
        return f"CLOCK_MONOTONIC of {host}, compared by round trips {how} the run"

    def read(self, log: RankLog, host: str) -> RankLog:
        """Return a log with the times of the first host's clock."""
        shift = self.shift_ns
        records = log.records.copy()
        for column in ("start", "end"):
            moved = [each + shift(each) if each else 0 for each in records[column].tolist()]
            records[column] = moved
        return replace(
            log,
            records=records,
            started_ns=log.started_ns + shift(log.started_ns),
            last_ns=log.last_ns + shift(log.last_ns),
            clock_method=self.method(host),
            clock_error_ns=log.clock_error_ns + self.error_ns(log.last_ns),
            host=host,
        )


FIRST = Clock(Comparison(0, 0, 0), Comparison(0, 0, 0))
"""The clock of the first host, which is every other one's measure."""


def compare(sock: socket.socket, round_trips: int = ROUND_TRIPS) -> Comparison:
    """Return how this host's clock compares with that of who answers on this connection by serve_clock()."""
    best: Comparison | None = None
    for _ in range(round_trips):
        asked = time.monotonic_ns()
        sock.sendall(b"?")
        (theirs,) = _TIME.unpack(read_exactly(sock, _TIME.size))
        got = time.monotonic_ns()
        error = (got - asked + 1) // 2
        if best is None or error < best.error_ns:
            best = Comparison((asked + got) // 2, theirs - (asked + got) // 2, max(error, 1))
    assert best is not None
    return best


def serve_clock(sock: socket.socket, now: Callable[[], int] = time.monotonic_ns) -> None:
    """Answer every byte with the time, until the other side hangs up."""
    with sock, contextlib.suppress(OSError):
        while sock.recv(1):
            sock.sendall(_TIME.pack(now()))
