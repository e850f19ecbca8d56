"""What was seen on the wire while one case ran, whoever watched: a timeline or the grader's relay."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Message:
    """One point-to-point message.

    Attributes:
        src: Global rank that sent it.
        dst: Global rank it was sent to.
        bytes: Its size.
        sent: Position of the send among all communication calls of `src` in this case, from 0.
        received: Position of the matching receive among those of `dst`, or None if nobody received it.
    """

    src: int
    dst: int
    bytes: int
    sent: int
    received: int | None = None


@dataclass(frozen=True)
class CollectiveCall:
    """One rank's call of a collective of the library ("all_reduce", "broadcast", "barrier", ...).

    Attributes:
        rank: Global rank that called.
        kind: c10d's word.
        bytes: Payload of this rank.
        sequence: Position among all communication calls of the rank in this case, from 0.
        waited: Position of the rank's first call after it waited for this one: `sequence` + 1 for a call that blocks;
            None where it never waited, or nobody saw it; the number of its calls where only a callback or another
            thread did.
    """

    rank: int
    kind: str
    bytes: int
    sequence: int
    waited: int | None = None


@dataclass(frozen=True)
class WireProblem:
    """Something on the wire that is wrong whatever the result.

    Attributes:
        kind: "unmatched_send" (nobody received it), "unmatched_recv", "changed_in_flight" (what an isend or a
            collective sends was written before wait), "read_before_wait", "not_waited" or "size_mismatch".
        rank: The rank that did it.
        text: A sentence for the learner.
        sequence: Position of the call that it speaks of among all communication calls of the rank; -1: not known.
    """

    kind: str
    rank: int
    text: str
    sequence: int = -1


@dataclass(frozen=True)
class Wire:
    """What was seen while a case ran.

    Attributes:
        messages: In the order (src, sent).
        collectives: The library's collectives that were called.
        problems: What is wrong whatever the result.
        steps: Messages that had to wait for one another, on the longest way; None where nobody counted.
    """

    messages: tuple[Message, ...] = ()
    collectives: tuple[CollectiveCall, ...] = ()
    problems: tuple[WireProblem, ...] = ()
    steps: int | None = None

    def sent_by(self, rank: int) -> tuple[Message, ...]:
        """Return what `rank` sent, in order, empty messages left out."""
        return tuple(sorted((m for m in self.messages if m.src == rank and m.bytes), key=lambda m: m.sent))

    def first_send(self, rank: int, to: Collection[int]) -> int | None:
        """Return the position of the first message of `rank` to one of these, empty messages left out."""
        return next((message.sent for message in self.sent_by(rank) if message.dst in to), None)

    def bytes_sent(self, rank: int) -> int:
        """Return the bytes `rank` sent in all."""
        return sum(m.bytes for m in self.messages if m.src == rank)

    def bytes_received(self, rank: int) -> int:
        """Return the bytes sent to `rank` in all."""
        return sum(m.bytes for m in self.messages if m.dst == rank)

    def peers(self, rank: int) -> tuple[int, ...]:
        """Return the ranks to which `rank` sent anything, sorted."""
        return tuple(sorted({m.dst for m in self.messages if m.src == rank and m.bytes}))

    def collective_kinds(self) -> tuple[str, ...]:
        """Return the names of the collectives that were called, sorted."""
        return tuple(sorted({call.kind for call in self.collectives}))

    def problems_of(self, *kinds: str) -> tuple[WireProblem, ...]:
        """Return the problems of these kinds."""
        return tuple(problem for problem in self.problems if problem.kind in kinds)


def ordered(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return the messages in the order a Wire holds them."""
    return tuple(sorted(messages, key=lambda m: (m.src, m.sent, m.dst)))
