"""Named regions on a rank's timeline: what labkit.span records inside a virtual rank."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

from labkit.simulator.record import Row
from labkit.simulator.state import VirtualRank, current_rank
from labkit.timeline.span import Lane, region_kind


def span(name: str, kind: str = "compute") -> AbstractContextManager[object]:
    """Return a context manager that records its body in virtual time; outside a virtual rank it does nothing."""
    rank = current_rank()
    if rank is None:
        return nullcontext()
    source, _ = rank.simulation.sources.find(sys._getframe(1))
    return _region(rank, name, kind, source)


def begun(rank: VirtualRank, name: str, kind: str, source: str) -> Row:
    """Return the span of a region that begins when the device comes to this point of the program."""
    row = rank.record.add(Row(Lane.REGION, rank.now_ns, -1, name, kind, source=source))
    rank.noted(partial(setattr, row, "start_ns"))
    return row


def ended(rank: VirtualRank, row: Row) -> None:
    """Let a region end when the device comes there."""
    rank.noted(partial(setattr, row, "end_ns"))


@contextmanager
def _region(rank: VirtualRank, name: str, kind: str, source: str) -> Iterator[None]:
    row = begun(rank, name, region_kind(kind), source)
    try:
        yield
    except BaseException:
        row.failed = True
        raise
    finally:
        ended(rank, row)
