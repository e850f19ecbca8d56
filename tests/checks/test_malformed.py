"""A result that is emptied, cut short, nested, retyped or robbed of a key never passes, and no judge trips over it."""

from __future__ import annotations

import pytest

from labkit.checks.drive import run_together
from labkit.checks.exercise import Exercise, judge
from labkit.checks.rank_side import run_cases
from labkit.checks.rooms import exercises
from labkit.checks.wire import Wire
from labkit.checks.wire_format import decode
from tests.checks.lesson_cells import NUMBERS, namespace, slug_of
from tests.checks.malformed import Results, malformed

OWN = ".parts"
"""Where the parts of a packet lie: how they look is the learner's own affair. What is unpacked of them counts."""
ON_RANKS = frozenset({"average"})
"""Exercises on processes that are tried every time."""
SLOW = frozenset({"compression_plan", "unequal_links", "offload_plan"})
"""Exercises whose judge trains, or plays a plan, anew for each result."""
ONE_IN = 3
"""So many exercises without ranks make one that is tried every time."""
MOST = 60
"""How many malformed results of an exercise are tried, spread over all of them."""


def _results(exercise: Exercise, number: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Results, Wire]:
    """Return what the lesson's own answer brings in the first visible case."""
    names, case = namespace(number=number), exercise.visible[0]
    functions = {name: names[name] for name in (*exercise.functions, *exercise.given) if name in names}
    if exercise.distributed:
        (brought,) = run_together(exercise, functions, [case]).cases
        assert isinstance(brought.got, tuple), brought.got
        return tuple(map(dict, brought.got)), brought.wire
    monkeypatch.setenv("RANK", "0")
    return (decode(run_cases(exercise.driver, functions, [case.inputs])[0]),), Wire()


def _asked() -> list[object]:
    rooms = [(number, each) for number in NUMBERS for each in exercises(slug_of(number)).values()]
    quick = [each.id for _, each in rooms if not each.distributed and each.id not in SLOW]
    often = {*quick[::ONE_IN], *ON_RANKS}
    return [
        pytest.param(number, each, id=each.id, marks=[] if each.id in often else [pytest.mark.long])
        for number, each in rooms
    ]


@pytest.mark.in_turn
@pytest.mark.parametrize(("number", "exercise"), _asked())
def test_no_malformed_result_passes(number: str, exercise: Exercise, monkeypatch: pytest.MonkeyPatch) -> None:
    results, wire = _results(exercise, number, monkeypatch)
    case = exercise.visible[0]
    assert judge(exercise, case, results, wire).passed
    found = [each for each in malformed(results) if OWN not in each[0]]
    if exercise.challenge is not None:  # a plan that names fewer things may be a plan all the same
        found = [each for each in found if not each[0].endswith("cut short")]
    for what, other in found[:: 1 + len(found) // MOST]:
        assert not judge(exercise, case, other, wire).passed, what
