"""Right numbers that nobody communicated do not pass, in any exercise on ranks."""

from __future__ import annotations

from typing import cast

import pytest

from labkit.checks.case import Values
from labkit.checks.exercise import Exercise, judge
from labkit.checks.least_traffic import Bytes, too_little
from labkit.checks.rooms import exercises
from labkit.checks.wire import CollectiveCall, Message, Wire
from tests.checks.lesson_cells import NUMBERS, slug_of

ON_RANKS = [each for number in NUMBERS for each in exercises(slug_of(number)).values() if each.distributed]


@pytest.mark.in_turn
@pytest.mark.parametrize("exercise", ON_RANKS, ids=lambda exercise: exercise.id)
def test_every_exercise_on_ranks_says_what_must_travel(exercise: Exercise) -> None:
    bounds = [exercise.least(case) for case in exercise.visible if case.world_size > 1]
    said = any(each.out or each.into for bound in bounds for each in bound.values())
    assert said, f"{exercise.id} is on ranks, and its EXERCISE says no `least`: what must leave and reach each rank"
    for case in exercise.visible:
        assert set(exercise.least(case)) <= set(range(case.world_size))


def test_a_sum_that_nobody_communicated_is_no_sum() -> None:
    (exercise,) = (each for each in ON_RANKS if each.id == "naive_all_reduce")
    case = exercise.visible[0]
    sums = cast(tuple[Values, ...], tuple(exercise.oracle(case)))
    right = tuple({**each, "returned": "", "raised": ""} for each in sums)
    verdict = judge(exercise, case, right, Wire())
    assert not verdict.passed and "did not come by messages" in verdict.message


def test_messages_and_collectives_count_in_both_directions() -> None:
    least = {0: Bytes(8, 8), 1: Bytes(8, 8)}
    to, back = Message(0, 1, 8, 0, 0), Message(1, 0, 8, 1, 1)
    assert not list(too_little(least, 2, Wire(messages=(to, back))))
    assert [each.rank for each in too_little(least, 2, Wire(messages=(to,)))] == [0, 1]
    calls = tuple(CollectiveCall(rank, "all_reduce", 8, 0) for rank in range(2))
    assert not list(too_little(least, 2, Wire(collectives=calls)))
