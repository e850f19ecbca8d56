"""An exercise, declared: which results are looked at, and which of its mistakes a wrong one is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from labkit.checks.blame import HANGS
from labkit.checks.case import Case, Failure, Values
from labkit.checks.cut_wire import between_barriers
from labkit.checks.declared import Mistake, Result, declared, either, failed_in, tensor_result
from labkit.checks.exercise import Exercise
from labkit.checks.finding import Finding
from labkit.checks.groups import group_of
from labkit.checks.verdict import Verdict
from labkit.checks.wire import CollectiveCall, Wire
from labkit.checks.wrong_answers import WrongAnswers

CASE = Case("3 ranks", 3, tuple({"x": torch.tensor([1.0 + rank, 2.0])} for rank in range(3)))


def total(case: Case) -> torch.Tensor:
    return torch.stack([values["x"] for values in case.inputs]).sum(0)  # type: ignore[arg-type]


def exercise(*mistakes: Mistake, **more: Any) -> Exercise:
    about = {
        "looks": (tensor_result("out.sum", "the sum", "another sum"),),
        "oracle": lambda case: [{"out": {"sum": total(case)}}] * case.world_size,
        **more,
    }
    visible, hints = (CASE,), ("", "", "")
    return declared(
        id="sums", functions=(), driver=lambda functions, inputs: {}, visible=visible, hints=hints,
        mistakes=(*mistakes, Mistake("another sum", "Something else was added up.")), **about,
    )  # fmt: skip


def verdict(of: Exercise, *came: torch.Tensor, wire: Wire | None = None) -> Verdict:
    got: tuple[Values, ...] = tuple({"out": {"sum": each}} for each in came)
    return of.judged(CASE, got, wire or Wire())


OWN = Mistake("own", "This is your own.", {"out.sum": lambda case, rank: case.inputs[rank]["x"]})
ON_0 = Mistake(
    "only on rank 0",
    "Every rank needs it.",
    {"out.sum": lambda case, rank: case.inputs[rank]["x"] if rank else total(case)},
)
NEVER = Mistake("never here", "It cannot be made here.", {"out.sum": lambda case, rank: None})


def test_right_results_pass() -> None:
    assert verdict(exercise(OWN), *[total(CASE)] * 3).passed


def test_what_was_computed_in_a_narrower_dtype_is_told_of_that() -> None:
    exact = torch.tensor([1.0, 2.0 / 3], dtype=torch.float64)
    of = exercise(oracle=lambda case: [{"out": {"sum": exact}}] * case.world_size)
    said = verdict(of, *[exact.float().double()] * 3)
    assert not said.passed and not said.mistake
    assert said.message.endswith("something was computed in a narrower dtype than torch.float64.")
    assert (said.expected, said.got) == ("0.6666666666666666", "0.6666666865348816")


def test_a_wrong_result_has_the_name_of_the_mistake_that_gives_it_and_the_sentence_with_numbers() -> None:
    said = verdict(exercise(NEVER, OWN), *(values["x"] for values in CASE.inputs))  # type: ignore[arg-type]
    assert (said.mistake, said.hint, said.rank) == ("own", "This is your own.", 0)
    assert said.message == "All ranks are wrong: the sum on rank 0 is wrong; entry 0 is furthest off."
    assert (said.expected, said.got) == ("[6, 6]", "[1, 2]")


def test_what_no_mistake_gives_is_the_result_s_own_mistake() -> None:
    assert verdict(exercise(OWN), *[torch.tensor([7.0, 7.0])] * 3).mistake == "another sum"


def test_a_mistake_that_gives_what_came_on_every_rank_goes_before_one_that_does_on_a_few() -> None:
    came = [total(CASE), *(values["x"] for values in CASE.inputs[1:])]
    assert verdict(exercise(OWN, ON_0), *came).mistake == "only on rank 0"  # type: ignore[arg-type]
    assert verdict(exercise(OWN), *came).mistake == "own"  # type: ignore[arg-type]


def test_a_mistake_that_must_give_what_came_everywhere_is_not_named_for_one_rank() -> None:
    came = CASE.inputs[0]["x"], total(CASE), torch.zeros(2)
    assert verdict(exercise(OWN), *came).mistake == "own"  # type: ignore[arg-type]
    everywhere = replace(OWN, everywhere=True)
    assert verdict(exercise(everywhere), *came).mistake == "another sum"  # type: ignore[arg-type]
    everybody = [each["x"] for each in CASE.inputs]
    assert verdict(exercise(everywhere), *everybody).mistake == "own"  # type: ignore[arg-type]


def test_a_way_that_does_not_fit_the_case_is_passed_over() -> None:
    missing = Mistake(
        "no such key", "", {"out.sum": (lambda case, rank: case.inputs[rank]["y"], lambda case, rank: 2 * total(case))}
    )
    assert verdict(exercise(missing), *[2 * total(CASE)] * 3).mistake == "no such key"


def test_a_rule_that_names_nothing_is_named_by_the_first_mark_on_the_run() -> None:
    seen = Mistake("called", "It calls all_reduce.", seen=lambda case, got, wire: bool(wire.collectives))
    of = exercise(seen, looks=(lambda case, got, wire: iter((Finding("", "It is too slow."),)),))
    assert (
        verdict(of, *[total(CASE)] * 3, wire=Wire(collectives=(CollectiveCall(0, "all_reduce", 8, 0),))).mistake
        == "called"
    )
    assert verdict(of, *[total(CASE)] * 3).mistake == ""


def test_a_failure_is_named_by_its_words_its_kind_or_the_function_that_raised() -> None:
    of = exercise(
        Mistake("hangs", "Somebody waits.", says=HANGS),
        Mistake("sizes", "Sizes differ.", says=("size", "shape")),
        Mistake("in mine", "Your function.", seen=either(failed_in("mine", "IndexError")), certain=True),
    )

    def named(failure: Failure) -> str:
        return of.judged(CASE, failure, Wire()).mistake

    assert named(Failure("deadlock", 0, "all wait")) == "hangs"
    assert named(Failure("exception", 0, "the shape is wrong", error="RuntimeError")) == "sizes"
    assert named(Failure("exception", 0, "out of range", "line 3, in mine", "IndexError")) == "in mine"
    assert named(Failure("exception", 0, "out of range", "line 3, in yours", "IndexError")) != "in mine"


def test_a_rank_of_which_the_oracle_says_nothing_is_not_looked_at() -> None:
    of = exercise(
        looks=(Result("sum", "Rank {rank} has {got}, expected {wanted}."),),
        oracle=lambda case: [{"sum": 6}, {}, {"sum": 6}],
    )
    got: tuple[Values, ...] = ({"sum": 6}, {}, {"sum": 5})
    assert of.judged(CASE, got, Wire()).message == "Rank 2 has 5, expected 6."


def test_a_rank_s_group_is_the_one_it_is_in_the_only_one_or_everybody() -> None:
    groups = Case("", 4, ({"groups": [[0, 2], [1, 3]]},) * 4)
    assert [group_of(groups, rank) for rank in range(4)] == [[0, 2], [1, 3], [0, 2], [1, 3]]
    assert group_of(Case("", 3, ({"group": [0, 2]},) * 3), 1) == [0, 2]
    assert group_of(CASE, 1) == [0, 1, 2]


def test_the_wire_is_cut_at_the_barriers_of_one_rank() -> None:
    kinds = ((0, "all_gather", 2), (0, "barrier", 1), (0, "all_reduce", 0), (1, "broadcast", 0))
    wire = Wire(collectives=tuple(CollectiveCall(rank, kind, 8, number) for rank, kind, number in kinds))
    parts = between_barriers(wire, 0)
    assert [[call.kind for call in part] for part in parts] == [["all_reduce"], ["all_gather"]]


def test_wrong_answers_of_one_program_are_its_text_with_a_body_of_their_own_or_with_changes() -> None:
    wrong = WrongAnswers()
    within = wrong.within("def total(numbers):\n    if numbers:\n        ...\n")
    within("two lines", "late", "\nnumbers = numbers[1:]\nreturn sum(numbers)\n")
    wrong.changing("def total(numbers):\n    return sum(numbers)\n")("the mean", "mean", ("sum(", "max("))
    two_lines, changed = (each.source("") for each in wrong)
    assert two_lines.endswith("    if numbers:\n        numbers = numbers[1:]\n        return sum(numbers)\n")
    assert changed == "def total(numbers):\n    return max(numbers)\n"
    assert [(each.name, each.mistake) for each in wrong] == [("two lines", "late"), ("the mean", "mean")]
