"""Every wrong answer against every recogniser of its exercise: the first that speaks up is the right one.

On virtual ranks, where a case takes milliseconds and a deadlock is known at once, or here where a case has one rank.
What needs real processes is left to the four proofs of its lesson.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from labkit.checks.exercise import Exercise, functions_for, judge
from labkit.checks.rooms import exercises, lessons
from tests.checks.brought import ON_PROCESSES, brought
from tests.checks.lesson_cells import namespace
from tests.checks.wrong_answers import WrongAnswer, wrong_answers

LESSONS = (
    "start_here", "data_parallel", "ring_all_reduce", "collectives", "ddp", "ddp_for_real_models", "parameter_server",
    "keys_rows_failures", "pipeline", "schedules", "gradient_compression", "faster_steps", "tensor_parallel",
    "sharded_training", "hybrid_parallelism", "planner", "when_machines_fail",
)  # fmt: skip
OTHERWISE = {
    ("bucketed_ddp", "unpacks row by row"): "it passes; what it costs is told afterwards",
    ("bucketed_ddp", "keeps a copy of each gradient"): "it passes; what it costs is told afterwards",
    ("context_ring", "all keys at once"): "it passes; what it costs is told afterwards",
    ("any_tensor", "chunk for tensor_split"): "the sweep names it",
    ("drop_in_all_reduce", "all ranks of the world"): "a rank outside the group comes first where no message is lost",
    ("drop_in_all_reduce", "in one piece, chunk for tensor_split"): "the sweep names it",
    ("halving_doubling", "an error for odd numbers alone"): "the sweep names it",
    ("expert_parallel", "lists of tokens"): "Gloo's own words tell it",
    ("halving_doubling", "halves taken for equal"): "Gloo's own words tell it",
    ("hierarchical_all_reduce", "chunk for tensor_split"): "the sweep names it",
    ("ring_attention", "all keys at once"): "it passes; what it costs is told afterwards",
    ("ring_sum", "one rank after the other sends"): "the sweep names it",
    ("run_plan", "all that is added lands in one buffer"): "the sweep names it",
    ("split_plan", "every plan"): "it never ends: the check's time limit tells it",
    ("tree_all_reduce", "three rounds written into the code"): "the sweep names it",
    ("posted_training", "isend, and nobody waits"): "a virtual message arrives, whether its sender waits or not",
    ("one_batch", "sends a view"): "what is not contiguous is Gloo's to refuse",
    ("run_schedule", "sends a view"): "what is not contiguous is Gloo's to refuse",
    ("run_schedule", "counts the forwards"): "an order that real processes show",
}
_SAMPLED = 32
"""So many go by before one is run every time."""


def _params() -> Iterator[Any]:
    for lesson in LESSONS:
        virtual = [
            each
            for each in wrong_answers(lesson)
            if each.exercise not in ON_PROCESSES and (each.exercise, each.name) not in OTHERWISE
        ]
        for number, answer in enumerate(virtual):
            marks = [] if number % _SAMPLED == 0 else [pytest.mark.long]
            yield pytest.param(lesson, answer, id=f"{answer.exercise} {answer.name}", marks=marks)


def test_no_lesson_is_left_out() -> None:
    assert set(LESSONS) == set(lessons())


@pytest.mark.in_turn
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # a wrong answer's own thread
@pytest.mark.filterwarnings("ignore:Using a target size:UserWarning")  # a wrong answer's loss
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # module.to() of what is no Parameter
@pytest.mark.parametrize(("lesson", "answer"), list(_params()))
def test_the_right_recogniser_is_the_first_to_see_a_wrong_answer(lesson: str, answer: WrongAnswer) -> None:
    exercise = exercises(lesson)[answer.exercise]
    names = namespace(extra=answer.source, number=lesson)
    assert next(_named(exercise, names), "nothing is wrong") == answer.mistake


def test_what_is_left_to_real_processes_is_there() -> None:
    there = {(each.exercise, each.name) for lesson in LESSONS for each in wrong_answers(lesson)}
    assert set(OTHERWISE) <= there


def _named(exercise: Exercise, names: dict[str, Any]) -> Iterator[str]:
    """Yield what each failing case is called, in the order of the cases."""
    for case in exercise.visible:
        got, wire = brought(exercise, functions_for(exercise, names), case)
        verdict = judge(exercise, case, got, wire)
        if not verdict.passed:
            yield verdict.mistake
