"""How a wrong result is off, in a sentence: true of what came, and silent where nothing simple is true of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from labkit.checks.case import Case, Failure
from labkit.checks.contributions import Shares
from labkit.checks.exercise import speaks_for_itself
from labkit.checks.outcome import CaseOutcome, _asks_for_ranks, _constants, _only_collectives, hint_across
from labkit.checks.parting import parting
from labkit.checks.rooms import find
from labkit.checks.verdict import Verdict
from labkit.exercises.planner.costs import step_parts, step_seconds
from labkit.exercises.planner.looks import in_common
from labkit.exercises.planner.parted import off_by_a_part
from labkit.exercises.sums_over_ranks.sum_outcome import _told
from labkit.plans.planned_step import Plan, job_of

RIGHT = [torch.tensor([1.0, 2.0, 4.0, 8.0], dtype=torch.float64), torch.tensor([3.0, 5.0, 7.0, 9.0]).double()]
GIVEN = [{"x": torch.tensor([0.5, 1.5, 2.5, 0.0])}, {"x": torch.tensor([1.0, 1.0, 2.0, 3.0])}]


def said(came: list[Any], wanted: list[Any] = RIGHT, given: list[Any] = GIVEN) -> str:
    pairs = dict(enumerate(zip(came, wanted, strict=True)))
    wrong = [rank for rank, (one, other) in pairs.items() if not _same(one, other)]
    return parting(pairs, wrong, given).removeprefix(" ")


def _same(one: Any, other: Any) -> bool:
    return torch.equal(one, other) if isinstance(one, Tensor) else bool(one == other)


@pytest.mark.parametrize(
    ("way", "sentence"),
    [
        (lambda right: 2 * right, "All numbers are twice what they should be."),
        (lambda right: right / 3, "All numbers are 1/3 of what they should be."),
        (lambda right: -right, "All numbers are right but for the sign."),
        (lambda right: 0 * right, "All numbers are 0."),
        (lambda right: torch.full_like(right, 1e30), "All numbers are 1e+30."),
        (lambda right: right + 1.5, "Each number is 1.5 too large."),
        (lambda right: right.square(), "All numbers are the square of what should be there."),
        (lambda right: right.sqrt(), "All numbers are the root of what should be there."),
        (lambda right: 1 / right, "All numbers are upside down: one divided by what should be there."),
        (lambda right: right.flip(0), "The numbers are the right ones, in reverse order."),
        (lambda right: right.roll(1), "The numbers are the right ones, each 1 place too far on."),
        (lambda right: right.roll(-1), "The numbers are the right ones, each 1 place too far back."),
        (lambda right: right[[1, 0, 2, 3]], "The numbers are the right ones, in another order."),
        (lambda right: right * torch.tensor([1, 1, 0, 0]), "Only elements 2 to 3 of 4 are wrong. They are 0."),
        (lambda right: right * torch.tensor([1, 3, 1, 1]), "Entry 1 alone is wrong."),
    ],
)  # fmt: skip
def test_what_is_true_of_all_ranks_is_said(way: Any, sentence: str) -> None:
    assert said([way(each) for each in RIGHT]) == sentence


def test_what_another_rank_should_have_and_what_was_given_is_said() -> None:
    assert said([RIGHT[1], RIGHT[1]]) == "It is what rank 1 should have."
    assert said([GIVEN[0]["x"].double(), GIVEN[1]["x"].double()]) == "It is what the rank was given, unchanged."


def test_one_factor_for_each_rank_is_said() -> None:
    came = [2 * RIGHT[0], RIGHT[1] / 4]
    assert said(came) == "All numbers of a rank are off by one factor: 2 on rank 0, 0.25 on rank 1."


def test_a_matrix_is_wrong_in_a_row_or_a_column() -> None:
    right = torch.arange(1.0, 13.0).double().view(3, 4)
    column = right.clone()
    column[:, 3] += torch.tensor([1.0, 2.0, 7.0])
    assert said([column], [right], []) == "One element in 4 is wrong, from element 3 on."
    two = right.clone()
    two[:, 1:3] *= torch.tensor([[2.0, 5.0], [1.5, 3.0], [7.0, 2.0]])
    assert said([two], [right], []) == "Only entries whose index is 1 to 2 in dimension 1 are wrong."


def test_nothing_is_said_where_nothing_simple_is_true() -> None:
    assert said([torch.tensor([0.3, 9.0, 1.1, 2.2]).double(), torch.tensor([5.0, 0.1, 0.2, 8.0]).double()]) == ""
    assert said([torch.zeros(3)], [torch.ones(4)], []) == ""
    assert said([7.0], [5.0], []) == "", "one number has a factor always: it says nothing"
    assert said([True], [False], []) == ""


def test_numbers_of_ranks_have_a_factor_where_they_differ() -> None:
    assert said([6.0, 10.0], [3.0, 5.0], []) == "The number is twice what it should be."


def test_nested_lists_part_at_their_first_difference() -> None:
    assert said([[[0, 1], [2, 3]]], [[[0, 1], [2, 4]]], []) == "At [1][1] it is 3 where 4 belongs."
    assert said([[[0, 1], [3, 2]]], [[[0, 1], [2, 3]]], []) == "At [1] it has the right entries, in reverse."
    assert said([[[0, 1]]], [[[0, 1], [2]]], []) == "It has 1 entry, expected 2."
    assert said([[{"a": 1}]], [[{"a": 2}]], []) == "At [0]['a'] it is 1 where 2 belongs."


def test_what_was_rounded_down_is_said() -> None:
    right = torch.tensor([1.5, 2.25, 3.75]).double()
    assert said([right.floor()], [right], []) == "All numbers are rounded down to whole ones."


def test_a_number_of_ranks_is_asked_after_only_where_it_stands_in_the_code() -> None:
    """Cases differ in more than the number of ranks, such as the shape of a mesh."""

    def helper(values: list[int]) -> int:
        return sum(values[:3])

    def written(values: list[int]) -> int:
        return helper(values)

    def asked(values: list[int]) -> int:
        return sum(values)

    def summed(values: torch.Tensor) -> None:
        dist.all_reduce(values)

    def sent(values: torch.Tensor) -> None:
        dist.all_reduce(values)
        dist.isend(values, 0)

    assert _only_collectives([summed]) and not _only_collectives([sent]) and not _only_collectives([asked])
    assert 3 in _constants([written, helper]) and 3 not in _constants([asked])
    assert _asks_for_ranks([type("Built", (), {"step": lambda self: dist.get_world_size() * 7})])
    assert not _asks_for_ranks([written, summed])
    assert 7 in _constants([type("Built", (), {"step": staticmethod(lambda: 7)})])


def test_wrong_numbers_of_plans_say_what_their_plans_have_in_common() -> None:
    plans = [Plan(2, 4, 2), Plan(8, 2, 1, 4), Plan(2, 4, 2, 2, True)]
    assert in_common([2.0, 2.0, 9.0], [2.0, 2.0, 3.0], [2], plans) == " Wrong are just the plans with recompute."
    said_of = in_common([4.0, 2.0, 6.0], [2.0, 2.0, 3.0], [0, 2], plans)
    assert said_of == (" Wrong are just the plans with tensor > 1. Each wrong number is 2 times what it should be.")
    pairs = in_common([[1.0, 5.0], [2.0, 5.0], [1.0, 3.0]], [[1.0, 2.0], [2.0, 3.0], [1.0, 1.0]], [0, 1, 2], plans)
    assert pairs == " Every wrong number is too large. Only the last entry is wrong."
    assert in_common([1.0, 9.0], [3.0, 2.0], [0, 1], plans[:2]) == ""
    more = in_common([[1.0, 3.0], [2.0, 4.0]], [[1.0, 2.0], [2.0, 3.0]], [0, 1], plans[:2], shown=lambda by: f"{by} s")
    assert more == " Each wrong number is 1.0 s too large. Only the last entry is wrong."
    moved = in_common([[3.0, 5.0, 6.0, 2.0]], [[2.0, 4.0, 6.0, 3.0]], [0], plans[:1])
    assert moved == " It is too large in entries 0 and 1 and too small in entry 3, each time by as much."
    assert in_common([[3.0, 5.0, 6.0, 2.5]], [[2.0, 4.0, 6.0, 3.0]], [0], plans[:1]) == ""


def test_the_part_of_a_formula_that_is_off_is_told_with_its_factor() -> None:
    job, plans = job_of(2048, 16, 16, 64), [Plan(2, 4, 2), Plan(2, 4, 2, 2, True), Plan(8, 2, 1, 4)]

    def told(came: list[float]) -> str:
        parts = {name: [step_parts(job, plan)[name] for plan in plans] for name in step_parts(job, plans[0])}
        return off_by_a_part(came, right, parts, job, plans)

    right = [step_seconds(job, plan) for plan in plans]
    assert told([step_seconds(job, plan, hops=0.0) for plan in plans]) == (
        " It comes out like this with the messages left out."
    )
    slowest = [step_parts(job, plan)["the slowest stage, for each microbatch but one,"] for plan in plans]
    assert told([one - other / 2 for one, other in zip(right, slowest, strict=True)]) == (
        " It comes out like this with the slowest stage, for each microbatch but one, counted half."
    )
    head = [step_parts(job, plan)["the head"] for plan in plans]
    assert told([one + other * (plan.data - 1) for one, other, plan in zip(right, head, plans, strict=True)]) == (
        " It comes out like this with the head multiplied by plan.data."
    )
    assert told([1.3 * right[0], right[1], 7 * right[2]]) == ""
    assert told(right) == ""


def test_what_fails_only_in_a_group_of_some_ranks_is_asked_after_the_group() -> None:
    def outcome(world: int, passed: bool, **inputs: Any) -> CaseOutcome:
        case = Case(f"{world} ranks", world, tuple({"x": 1, **inputs} for _ in range(world)))
        return CaseOutcome(case, Verdict(passed))

    exercise = find("two_operators")
    grouped = outcome(4, False, groups=[[0, 1], [2, 3]])
    assert "Ask the group" in hint_across(exercise, [outcome(2, True), outcome(3, True), grouped])
    assert "Ask the group" not in hint_across(exercise, [outcome(2, True), outcome(3, False), grouped])
    assert "Ask the group" not in hint_across(exercise, [outcome(2, True), outcome(4, False, groups=[[0, 1, 2, 3]])])
    one = outcome(4, False, group=[1, 3])
    assert "Ask the group" in hint_across(exercise, [outcome(2, True), one])
    no_error = CaseOutcome(Case("3 ranks: ValueError", 3, ({"x": 1},) * 3), Verdict(False))
    assert "Ask the group" not in hint_across(exercise, [outcome(2, True), outcome(4, True), no_error])


def test_a_shape_that_does_not_fit_speaks_for_itself() -> None:
    def failure(message: str) -> Failure:
        return Failure("exception", 0, message, error="RuntimeError")

    assert speaks_for_itself(failure("Rank 0 raised RuntimeError: shape '[4, 6]' is invalid for input of size 20."))
    assert not speaks_for_itself(failure("Rank 0 raised RuntimeError: reduce_scatter got 4 tensors on 2 ranks."))


def test_rows_that_belong_elsewhere_are_told_of_that() -> None:
    wanted = torch.arange(8.0, dtype=torch.float64).view(4, 2)
    assert said([wanted[[0, 3, 3, 2]]], [wanted], []).startswith(
        "Each wrong row is another row's: first, in row 1 stands what belongs in row 3."
    )
    assert "another row's" not in said([wanted + torch.tensor([0.0, 0.5])], [wanted], [])


def test_of_16_bit_sums_only_all_contributions_or_one_alone_are_told() -> None:
    shares: list[Shares] = [(1, 1, 1), (1, 0, 0), (1, 0, 2), None]
    assert _told(torch.zeros(4, dtype=torch.bfloat16), shares) == [(1, 1, 1), (1, 0, 0), None, None]
    assert _told(torch.zeros(4), shares) == shares
