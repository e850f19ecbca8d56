"""What a ``find`` or ``why`` earns: the literals of a submission, held against the class's key or else labkit's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labkit.checks.question import KEY, QUESTION, Key, Literal, misuse, read_key, read_question
from labkit.grading.course import Course
from labkit.grading.score import CaseResult, ExerciseResult
from labkit.lessons.manifest import Exercise
from labkit.words import join

NOT_YOURS = "whose file this is is not known, so nobody can tell which run it is about; ask your instructor"


def judge_answer(
    course: Course,
    exercise: Exercise,
    given: Mapping[str, Literal],
    drawn: Mapping[str, Mapping[str, Any]] | None = None,
) -> ExerciseResult:
    """Return what an answer earns: all of it or nothing, and no word of which part is right.

    Told part by part, a handful of attempts would find out the key. A hint that hangs on one part tells as much.

    Args:
        course: The lesson.
        exercise: Which question.
        given: The answer.
        drawn: Where students have runs of their own: what this student's keys say, by slug.

    Raises:
        ConfigError: If the question or its key is not there.
    """
    question = read_question(_place(course, exercise.id, own=False) / QUESTION)
    own = (drawn or {}).get(exercise.id)
    key = read_key(_place(course, exercise.id, own=True) / KEY)
    if own is not None:
        key = Key(dict(own["answers"]), "", dict(own.get("within", {})), ())
    problem = misuse(question, given) or (NOT_YOURS if drawn is not None and "" in drawn else "")
    if problem:
        return ExerciseResult(exercise, "failed", (CaseResult("the answer", False, problem),), 1)
    asked = join([field.asks for field in question.fields.values()])
    if all(key.is_right(name, given[name]) for name in question.fields):
        return ExerciseResult(exercise, "passed", (CaseResult(asked, True),), 1)
    missing = [field.asks for name, field in question.fields.items() if given[name] is None]
    several = len(question.fields) > 1
    message = f"no answer for {join(missing)}" if missing else "not all of it is right" if several else "not right"
    hint = key.hint_for_all() if several else key.hint(given)
    return ExerciseResult(exercise, "failed", (CaseResult(asked, False, message, hint),), 1)


def _place(course: Course, exercise_id: str, *, own: bool) -> Path:
    """Return the folder of a question, or (own) that of the class's key where it has one."""
    if own and (course.class_keys / exercise_id / KEY).is_file():
        return course.class_keys / exercise_id
    return course.rooms / exercise_id
