"""The wire cut at the barriers that a driver puts between its calls."""

from __future__ import annotations

from collections.abc import Collection

from labkit.checks.wire import CollectiveCall, Wire

BARRIER = "barrier"


def between_barriers(
    wire: Wire, rank: int, barriers: Collection[str] = frozenset({BARRIER})
) -> list[list[CollectiveCall]]:
    """Return the collectives that a rank called before its first barrier, between each and the next, after the last.

    Args:
        wire: What passed.
        rank: Whose calls.
        barriers: The kinds of calls that a driver separates others with.
    """
    parts: list[list[CollectiveCall]] = [[]]
    for call in sorted((each for each in wire.collectives if each.rank == rank), key=lambda call: call.sequence):
        if call.kind in barriers:
            parts.append([])
        else:
            parts[-1].append(call)
    return parts


def waited_at_once(call: CollectiveCall) -> bool:
    """Return whether a call was waited for before the rank called anything else."""
    return call.waited == call.sequence + 1


def left_alone(wire: Wire) -> list[CollectiveCall]:
    """Return the collectives for which nobody waited; none where nobody saw any call end."""
    seen = any(call.waited is not None for call in wire.collectives)
    return [call for call in wire.collectives if seen and call.waited is None]
