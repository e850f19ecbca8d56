"""An answer that knows the visible cases by heart, or the stand-ins they bring, loses its points: every exercise's.

Both are made of the exercise's own answer: it is asked the visible cases, each call is remembered, and from then on it
is right for what it remembers and for nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from labkit.checks.case import Case, Failure
from labkit.checks.exercise import Exercise, functions_for, judge
from labkit.checks.hidden import hidden_cases
from labkit.checks.on_ranks.other_kind import OTHER_KIND
from labkit.checks.rooms import LABKIT, exercises
from tests.checks.brought import brought
from tests.checks.knowing import Print, by_stand_in, by_value, knowing, watched
from tests.checks.lesson_cells import NUMBERS, namespace, slug_of

pytestmark = pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor:UserWarning"
)  # who looks, not who learns
OTHERWISE = {
    "compression_hook": "its futures wait in torch's C++; tests/submissions/answers_10 has both answers to it",
}
"""Exercises whose answers do not run on virtual ranks, and what tries them."""
SECRET = 2**255 + 7
OFTEN = frozenset({"chunk_bounds", "loss_scaling", "recompute_plan"})
"""Tried every time."""


def _every() -> Iterator[Any]:
    rooms = [(number, each) for number in NUMBERS for each in exercises(slug_of(number)).values()]
    for number, each in rooms:
        if each.id not in OTHERWISE:
            yield pytest.param(number, each, id=each.id, marks=[] if each.id in OFTEN else [pytest.mark.long])


def _functions(number: str, exercise: Exercise, changed: Callable[[Any], Any]) -> dict[str, Any]:
    functions: dict[str, Any] = dict(functions_for(exercise, namespace(number=number)))
    return functions | {name: changed(functions[name]) for name in exercise.functions}


def _fault(exercise: Exercise, functions: dict[str, Any], cases: list[Case]) -> str:
    """Return what is wrong with the first case that does not pass, "" where all do, as points ask."""
    for case in cases:
        verdict = judge(exercise, case, *brought(exercise, functions, case))
        if not verdict.passed:
            return f"{case.name}: {verdict.message}"
    return ""


def _remembered(number: str, exercise: Exercise, cases: list[Case], kept: Path, of: Print) -> frozenset[str]:
    kept.touch()
    functions = _functions(number, exercise, lambda answer: watched(answer, kept, of))
    for case in cases:
        got, _ = brought(exercise, functions, case)
        assert not isinstance(got, Failure), got
    return frozenset(kept.read_text(encoding="utf-8").splitlines())


@pytest.mark.in_turn
@pytest.mark.parametrize(("number", "exercise"), list(_every()))
def test_who_knows_the_visible_cases_by_heart_loses_the_points(number: str, exercise: Exercise, tmp_path: Path) -> None:
    visible, hidden = list(exercise.visible), hidden_cases(LABKIT, slug_of(number), exercise.id, SECRET)
    known = _remembered(number, exercise, visible, tmp_path / "known", by_value)
    functions = _functions(number, exercise, lambda answer: knowing(answer, known, by_value))
    assert not _fault(exercise, functions, visible)
    assert _fault(exercise, functions, hidden), "the visible cases by heart are enough"


@pytest.mark.long
@pytest.mark.parametrize(("number", "exercise"), list(_every()))
def test_the_right_answer_works_for_stand_ins_of_another_kind(number: str, exercise: Exercise) -> None:
    hidden = hidden_cases(LABKIT, slug_of(number), exercise.id, SECRET)
    other = [case for case in hidden if OTHER_KIND in case.inputs[0]]
    if not other:
        pytest.skip("no case brings any")
    assert _fault(exercise, _functions(number, exercise, lambda answer: answer), other) == ""


@pytest.mark.long
@pytest.mark.parametrize(("number", "exercise"), list(_every()))
def test_who_recognises_a_stand_in_loses_the_points(number: str, exercise: Exercise, tmp_path: Path) -> None:
    visible, hidden = list(exercise.visible), hidden_cases(LABKIT, slug_of(number), exercise.id, SECRET)
    known = _remembered(number, exercise, visible, tmp_path / "known", by_stand_in)
    if known == {""}:
        pytest.skip("it is handed tensors and plain values alone")
    functions = _functions(number, exercise, lambda answer: knowing(answer, known, by_stand_in))
    assert _fault(exercise, functions, hidden), "the stand-ins of the visible cases are enough"
