"""Hidden cases are new: whoever knows the visible ones by heart does not know them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from torch import Tensor

from labkit.checks.case import Case
from labkit.checks.exercise import Exercise
from labkit.checks.hidden import hidden_cases
from labkit.checks.rooms import LABKIT, exercises
from tests.checks.lesson_cells import slug_of
from tests.checks.malformed import same
from tests.sampling import one_in
from tests.submissions.making import LESSONS

EVERY = [
    pytest.param(slug_of(number), each, id=each.id)
    for number in LESSONS
    for each in exercises(slug_of(number)).values()
]
SECRETS = (2**255 + 1, 2**255 + 2)
TRAITS = ("layout", "op", "async", "group", "combine", "compressor", "before", "mesh", "spare")


def _hidden(slug: str, exercise: Exercise, secret: int) -> list[Case]:
    return hidden_cases(LABKIT, slug, exercise.id, secret)


@pytest.mark.in_turn
@pytest.mark.parametrize("each", one_in(3, EVERY, lambda each: str(each.id)))
def test_who_knows_the_visible_cases_by_heart_does_not_know_the_hidden_ones(each: Any) -> None:
    slug, exercise = each.values
    known = [dict(inputs) for case in exercise.visible for inputs in case.inputs]
    for secret in SECRETS:
        new = [
            case
            for case in _hidden(slug, exercise, secret)
            if not any(same(dict(inputs), shown) for inputs in case.inputs for shown in known)
        ]
        assert new, f"every hidden case is a visible one for secret {secret}"


def _traits(case: Case) -> frozenset[tuple[str, str]]:
    """Return what is special about a case, each as a word: its dtype, layout, operation, whether a group takes part."""
    found = {("dtype", str(value.dtype)) for value in _tensors(dict(case.inputs[-1]))}
    for inputs in case.inputs:
        for name in TRAITS:
            if name in inputs:
                value = inputs[name]
                kind = value.get("kind") if isinstance(value, dict) else value if isinstance(value, str) else "there"
                found.add((name, str(kind)))
    return frozenset(found)


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors(part)


@pytest.mark.parametrize(
    ("slug", "exercise"),
    [each for each in EVERY if each.values[1].distributed and each.values[0] in ("ring_all_reduce", "collectives")]  # type: ignore[union-attr]
    + [each for each in EVERY if each.id == "compression_hook"],
)
def test_hidden_cases_combine_what_the_visible_ones_show_apart(slug: str, exercise: Exercise) -> None:
    shown = {_traits(case) for case in exercise.visible}
    hidden = {_traits(case) for case in _hidden(slug, exercise, SECRETS[0])}
    assert hidden - shown, (
        f"every hidden case of {exercise.id} has the dtype, layout, operation and group of a visible one; "
        f"give one of them a combination that none of these is: {sorted(map(sorted, shown))}"
    )
