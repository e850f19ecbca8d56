"""Named regions on a rank's timeline: what labkit.span records inside a virtual rank."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

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


@contextmanager
def _region(rank: VirtualRank, name: str, kind: str, source: str) -> Iterator[None]:
    row = rank.record.add(Row(Lane.REGION, rank.now_ns, -1, name, region_kind(kind), source=source))
    try:
        yield
    except BaseException:
        row.failed = True
        raise
    finally:
        row.end_ns = rank.now_ns
