"""What a rank called, and which of it gathers or scatters."""

from __future__ import annotations

from labkit.checks.cut_wire import BARRIER, between_barriers
from labkit.checks.wire import CollectiveCall, Wire

MARKS = frozenset({BARRIER, "all_to_all", "all_to_all_single"})
"""What drivers mark the wire with: barriers, and exchanges of numbers (on_ranks.exchange)."""


def calls_of(wire: Wire, rank: int) -> list[CollectiveCall]:
    """Return the collectives that a rank called, the driver's barriers left out."""
    return [call for part in between_barriers(wire, rank) for call in part]


def gathers(calls: list[CollectiveCall]) -> list[CollectiveCall]:
    """Return those that gather."""
    return [call for call in calls if call.kind.startswith(("all_gather", "broadcast"))]


def scatters(calls: list[CollectiveCall]) -> list[CollectiveCall]:
    """Return those that reduce and scatter."""
    return [call for call in calls if call.kind.startswith("reduce_scatter")]
