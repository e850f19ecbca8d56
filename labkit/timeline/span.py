"""What a timeline is made of: one row, and the views of rows that checks read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Lane(IntEnum):
    """Which of a rank's rows in the picture a span lies in."""

    COMPUTE = 0
    COMMUNICATION = 1
    HOST = 2
    REGION = 3


COMPUTE, COMMUNICATION, HOST, REGION = Lane


def region_kind(kind: str) -> str:
    """Return the kind of a named region's span: a phase such as "backward" is kept, "compute" and the like say less."""
    return "span" if kind in ("compute", "communication", "host") else kind


@dataclass(frozen=True)
class Span:
    """One row of a timeline.

    Attributes:
        rank: Global rank.
        lane: COMPUTE, COMMUNICATION, HOST, or REGION for a name given to a stretch of time: work is in the others.
        start_ns: Begin, nanoseconds since the first span of the timeline began.
        end_ns: End.
        name: What the picture shows.
        kind: c10d's word ("all_reduce", "isend", "recv", ...), "wait", "span" for a named region, or the region's kind;
            "rpc_sync", "rpc_async", "remote" or "to_here" for a remote call, "rpc_serve" where it is executed.
        bytes: Payload; for a collective the size nccl-tests would print.
        peer: Global rank at the other end of a point-to-point or remote call, else -1.
        flow: Number shared by both ends of a point-to-point message or remote call, else -1.
    """

    rank: int
    lane: Lane
    start_ns: int
    end_ns: int
    name: str
    kind: str
    bytes: int = 0
    peer: int = -1
    flow: int = -1

    @property
    def duration_ns(self) -> int:
        """Return end_ns - start_ns."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True)
class Message:
    """One point-to-point message, seen from its send.

    Attributes:
        src: Global rank that sent it.
        dst: Global rank it was sent to.
        bytes: Its size.
        kind: "send" or "isend".
        sequence: Position of the send among all communication calls of src, from 0.
        received: Position of the matching receive among all communication calls of dst, None if nothing received it.
    """

    src: int
    dst: int
    bytes: int
    kind: str
    sequence: int
    received: int | None = None


@dataclass(frozen=True)
class Collective:
    """One rank's call of a collective.

    Attributes:
        rank: Global rank that called.
        kind: "all_reduce", "broadcast", "barrier", ...
        bytes: Payload as nccl-tests counts it.
        sequence: Position of the call among all communication calls of the rank, from 0.
    """

    rank: int
    kind: str
    bytes: int
    sequence: int


@dataclass(frozen=True)
class Problem:
    """Something in the record that is wrong whatever the result was.

    Attributes:
        kind: "changed_in_flight", "unmatched_send", "unmatched_recv", "size_mismatch", "mismatch", "not_waited",
            "dropped", "unmatched_group" or "no_record".
        rank: The rank that did it.
        text: A sentence for the learner.
        row: The row of the timeline that it speaks of, -1 where there is none.
    """

    kind: str
    rank: int
    text: str
    row: int = -1

    def __str__(self) -> str:
        return self.text
