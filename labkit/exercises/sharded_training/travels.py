"""What a rank called between its driver's marks, and which of it gathers or scatters.

A mark is a barrier. In hidden cases some marks ask for a number of another rank instead (on_ranks.asker): what is done
with the number tells that nobody held the mark back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from labkit.checks import draws
from labkit.checks.case import Case
from labkit.checks.cut_wire import BARRIER, between_barriers
from labkit.checks.finding import Finding
from labkit.checks.wire import CollectiveCall, Wire
from labkit.exercises.sharded_training.on_ranks import drawn_marks

_ASKS = "scatter"
_MARKS = frozenset({BARRIER, _ASKS})


def asking(case: Case, seed: int) -> Case:
    """Return a case some of whose marks ask for numbers, which each rank draws by a seed of its own."""
    seeds = [draws.part_of(seed, "rank", rank, "marks") for rank in range(case.world_size)]
    inputs = tuple({**each, "marks": mine} for each, mine in zip(case.inputs, seeds, strict=True))
    return replace(case, inputs=inputs)


def asks(case: Case) -> bool:
    """Return whether some of a case's marks ask for numbers."""
    return "marks" in case.inputs[0]


def answered(case: Case, number: int) -> float:
    """Return what comes when the ranks ask for the time of this number, counted from 0; 0 where no mark asks."""
    if not asks(case):
        return 0.0
    return float(drawn_marks(case.inputs[number % case.world_size])[number])


def parts_of(wire: Wire, rank: int) -> list[list[CollectiveCall]]:
    """Return the collectives that a rank called before the driver's first mark, between each and the next, after it."""
    return between_barriers(wire, rank, _MARKS)


def not_the_drivers(case: Case, wire: Wire, rank: int, marks: Sequence[bool]) -> Finding | None:
    """Return what is said of a rank with other marks on its wire than the driver's, or with messages beside them.

    Args:
        case: What ran.
        wire: What passed.
        rank: Whose calls.
        marks: For each mark of the driver whether it asks, where the case's marks ask.
    """
    wanted = [_ASKS if each and asks(case) else BARRIER for each in marks]
    calls = sorted((each for each in wire.collectives if each.rank == rank), key=lambda call: call.sequence)
    if [call.kind for call in calls if call.kind in _MARKS] != wanted:
        text = "This check marks the wire with barriers and scatters of its own; call none in your code."
        return Finding("", text, rank=rank)
    if any(each.src == rank for each in wire.messages):
        return Finding("", f"Rank {rank} sends messages to single ranks; use collectives alone.", rank=rank)
    return None


def calls_of(wire: Wire, rank: int) -> list[CollectiveCall]:
    """Return the collectives that a rank called, the driver's marks left out."""
    return [call for part in parts_of(wire, rank) for call in part]


def gathers(calls: list[CollectiveCall]) -> list[CollectiveCall]:
    """Return those that gather."""
    return [call for call in calls if call.kind.startswith(("all_gather", "broadcast"))]


def scatters(calls: list[CollectiveCall]) -> list[CollectiveCall]:
    """Return those that reduce and scatter."""
    return [call for call in calls if call.kind.startswith("reduce_scatter")]
