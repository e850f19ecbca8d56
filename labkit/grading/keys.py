"""What a ``find`` or ``why`` earns: the literals of a submission, held against the class's key or else labkit's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from labkit.checks.question import KEY, QUESTION, Literal, misuse, read_key, read_question
from labkit.grading.course import Course
from labkit.grading.score import CaseResult, ExerciseResult
from labkit.lessons.manifest import Exercise

_LABKITS = Path(__file__).resolve().parents[1] / "exercises"


def judge_answer(course: Course, exercise: Exercise, given: Mapping[str, Literal]) -> ExerciseResult:
    """Return what an answer earns: all of it or nothing, each field a case.

    Raises:
        ConfigError: If the question or its key is not there.
    """
    question = read_question(_place(course, exercise.id, own=False) / QUESTION)
    key = read_key(_place(course, exercise.id, own=True) / KEY)
    if problem := misuse(question, given):
        return ExerciseResult(exercise, "failed", (CaseResult("the answer", False, problem),), 1)
    hint = key.hint(given)
    cases = []
    for name, field in question.fields.items():
        right = key.is_right(name, given[name])
        message = "" if right else "no answer" if given[name] is None else f"{given[name]!r} is not right"
        cases.append(CaseResult(field.asks, right, message, "" if right else hint))
    passed = all(case.passed for case in cases)
    return ExerciseResult(exercise, "passed" if passed else "failed", tuple(cases), len(cases))


def _place(course: Course, exercise_id: str, *, own: bool) -> Path:
    """Return the folder of a question, or (own) that of the class's key where it has one."""
    if own and (course.hidden / exercise_id / KEY).is_file():
        return course.hidden / exercise_id
    return (course.exercises or _LABKITS / course.slug) / exercise_id
