"""torch.cuda.nvtx as ranks with virtual devices find it: its ranges are named regions, as labkit.span makes them."""

from __future__ import annotations

import sys
from typing import Any

from labkit.simulator.cuda_events import the_accelerated
from labkit.simulator.record import Row
from labkit.simulator.regions import begun, ended
from labkit.timeline.span import region_kind


def _begun(name: str) -> Row:
    rank = the_accelerated()
    source, _ = rank.simulation.sources.find(sys._getframe(2))
    return begun(rank, str(name), region_kind("compute"), source)


def _push(msg: str) -> int:
    ranges = the_accelerated().process.accelerator.ranges
    ranges.append(_begun(msg))
    return len(ranges) - 1


def _pop() -> int:
    rank = the_accelerated()
    ranges = rank.process.accelerator.ranges
    if not ranges:
        return -2  # as NVTX says that there is none
    ended(rank, ranges.pop())
    return len(ranges)


def _start(msg: str) -> Row:
    return _begun(msg)


def _end(range_id: Row) -> None:
    ended(the_accelerated(), range_id)


def _mark(msg: str) -> None:
    ended(the_accelerated(), _begun(msg))


ANSWERED: dict[str, Any] = {
    "range_push": _push,
    "range_pop": _pop,
    "range_start": _start,
    "range_end": _end,
    "mark": _mark,
}
"""Name in torch.cuda.nvtx -> what a rank with a virtual device calls in its place."""
