"""The least that must travel: numbers that depend on other ranks' inputs and came without a message were not computed.

Each bound is what information needs, far below what any algorithm sends: it names no way to do it, and no right answer
comes near it. A collective counts for all it could bring.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from labkit.checks.case import Case
from labkit.checks.finding import Finding
from labkit.checks.wire import Wire

MOST_PACKED = 4
"""Bytes that an element of 8 may be packed into, at most generous."""
NOT_COMMUNICATED = "not communicated"


class Bytes(NamedTuple):
    """What must leave a rank, and what must come to it."""

    out: int = 0
    into: int = 0


LeastTraffic: TypeAlias = Callable[[Case], Mapping[int, Bytes]]
"""Returns for each rank what must travel; ranks that are left out need not communicate."""


def both_ways(ranks: Iterable[int], num_elements: int, element_size: int = MOST_PACKED) -> dict[int, Bytes]:
    """Return the bounds where each of several ranks has that many elements that all others' results depend on.

    Args:
        ranks: Those that take part; one alone communicates nothing.
        num_elements: Of each rank's part.
        element_size: Bytes of an element as it is given.
    """
    members, size = list(ranks), num_elements * min(element_size, MOST_PACKED)
    return {rank: Bytes(size, size) for rank in members} if len(members) > 1 else {}


def too_little(least: Mapping[int, Bytes], world_size: int, wire: Wire) -> Iterator[Finding]:
    """Yield a finding for each rank of which less came, or to which less came, than its numbers need."""
    for rank, needed in least.items():
        together = world_size * sum(call.bytes for call in wire.collectives if call.rank == rank)
        out, into = wire.bytes_sent(rank) + together, wire.bytes_received(rank) + together
        if out < needed.out:
            text = f"rank {rank} sent {out} bytes, and the others need at least {needed.out} from it"
        elif into < needed.into:
            text = f"rank {rank} was sent {into} bytes, and it needs at least {needed.into} from the others"
        else:
            continue
        yield Finding(NOT_COMMUNICATED, f"The numbers are right, but {text}: they did not come by messages.", rank=rank)
