"""The wire cut at the driver's barriers."""

from __future__ import annotations

from labkit.checks.wire import CollectiveCall, Wire


def stretches(wire: Wire, rank: int) -> list[list[CollectiveCall]]:
    """Return the collectives that a rank called before its first barrier, between each and the next, after the last."""
    parts: list[list[CollectiveCall]] = [[]]
    for call in sorted((c for c in wire.collectives if c.rank == rank), key=lambda c: c.sequence):
        if call.kind == "barrier":
            parts.append([])
        else:
            parts[-1].append(call)
    return parts


def calls_of(wire: Wire, rank: int) -> list[CollectiveCall]:
    """Return the collectives that a rank called, the driver's barriers left out."""
    return [call for part in stretches(wire, rank) for call in part]


def waited_at_once(call: CollectiveCall) -> bool:
    """Return whether a call was waited for before the rank called anything else."""
    return call.waited == call.sequence + 1


def gathers(calls: list[CollectiveCall]) -> list[CollectiveCall]:
    """Return those that gather."""
    return [call for call in calls if call.kind.startswith(("all_gather", "broadcast"))]


def scatters(calls: list[CollectiveCall]) -> list[CollectiveCall]:
    """Return those that reduce and scatter."""
    return [call for call in calls if call.kind.startswith("reduce_scatter")]
