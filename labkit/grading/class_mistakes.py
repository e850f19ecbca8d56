"""`labkit mistake add`: an answer that somebody handed in leaves its fingerprint, under a name and a hint."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

from labkit.checks.class_mistakes import ClassMistake, read_mistakes, write_mistakes
from labkit.checks.fingerprint import NOTHING, PASSED, CasePrint, Fingerprint
from labkit.checks.rooms import find, folder_of, lesson_of
from labkit.errors import ConfigError
from labkit.grading.course import Course, find_course
from labkit.grading.file_reader import FileReader
from labkit.grading.hidden_cases.oracle import Left, Oracle
from labkit.grading.hidden_cases.probe import CaseRun
from labkit.grading.limits import Limits
from labkit.grading.notebook.other_lesson import other_lesson
from labkit.grading.notebook.rebuild import Rebuilt, rebuild
from labkit.grading.own_folders import own_prefix
from labkit.grading.preloaded.template import Template
from labkit.grading.sandbox.bubblewrap import require
from labkit.grading.submission import find_submissions


def add_mistake(
    exercise_id: str, file: Path, name: str, hint: str, course: Path | None = None, sandbox: str = "bubblewrap"
) -> Path:
    """Return the file that holds an exercise's class mistakes, with the one that a student's notebook makes.

    The student's answer runs on the visible cases, in the sandbox that grading has, and nothing of it is kept but its
    fingerprint. A name that is there gets another fingerprint, and this hint.

    Args:
        exercise_id: Its slug.
        file: The student's notebook.
        name: Of the mistake, a few words.
        hint: What everybody who makes it is told.
        course: The folder that holds ``notebooks/`` and ``solutions/``.
        sandbox: "bubblewrap", or "none" for a file that you trust.

    Raises:
        ConfigError: If there is no such answer, nothing is wrong with it, or a check names its mistake already.
    """
    exercise, room = find(exercise_id), folder_of(exercise_id)
    name, hint = name.strip(), hint.strip()
    if not name or not hint:
        raise ConfigError("a mistake needs a name, a few words, and a hint, a sentence that points at the cure")
    if name in exercise.mistakes:
        raise ConfigError(f"{exercise_id} has a mistake {name!r} of its own; give yours another name")
    if sandbox != "none":
        require()
    found = find_course(lesson_of(exercise_id), course, [file])
    left = _left_behind(found, exercise_id, _answer(found, exercise_id, file), sandbox)
    fingerprint = _fingerprint(exercise_id, left, len(exercise.visible))
    known = read_mistakes(room)
    if other := next((each.name for each in known if each.name != name and each.left(fingerprint)), ""):
        raise ConfigError(f"this answer leaves behind what the mistake {other!r} leaves; add it under that name")
    mine = next((each for each in known if each.name == name), ClassMistake(name, hint, ()))
    prints = mine.fingerprints if mine.left(fingerprint) else (*mine.fingerprints, fingerprint)
    return write_mistakes(room, [*(each for each in known if each is not mine), ClassMistake(name, hint, prints)])


def remove_mistake(exercise_id: str, name: str) -> Path:
    """Return the file that holds an exercise's class mistakes, without this one.

    Raises:
        ConfigError: If there is none of this name.
    """
    room = folder_of(exercise_id)
    known = read_mistakes(room)
    if name not in [each.name for each in known]:
        there = ", ".join(repr(each.name) for each in known) or "none"
        raise ConfigError(f"nobody added a mistake {name!r} to {exercise_id}; added were: {there}")
    return write_mistakes(room, [each for each in known if each.name != name])


def _answer(course: Course, exercise_id: str, file: Path) -> Rebuilt:
    """Return the lesson's notebook with the answers of a student's file."""
    (submission, *others), _ = find_submissions([file], course.manifest.lesson)
    if others:
        raise ConfigError(f"{file} holds {len(others) + 1} notebooks; name the one whose mistake you add")
    reader = FileReader()
    try:
        notebook = reader.read(submission)
    finally:
        reader.close()
    if problem := notebook.problem or other_lesson(notebook, course):
        raise ConfigError(f"the answer in {file} cannot be taken: {problem}")
    rebuilt = rebuild(notebook.cells, course.pristine)
    if exercise_id in rebuilt.unchanged:
        raise ConfigError(f"{file} has no answer to {exercise_id}: its cell is as it was handed out")
    return rebuilt


def _left_behind(course: Course, exercise_id: str, rebuilt: Rebuilt, sandbox: str) -> list[Left]:
    """Return what the answer brings in each visible case, until one fails."""
    limits = Limits()
    left: list[Left] = []
    with ExitStack() as closed:
        folder = Path(tempfile.mkdtemp(prefix=own_prefix("student")))
        closed.callback(shutil.rmtree, folder, ignore_errors=True)
        oracle = Oracle(course, limits)
        closed.callback(oracle.close)
        template = Template(None if sandbox == "none" else course.secrets, limits)
        closed.callback(template.close)
        template.ready(oracle.rank_side)
        cells = rebuilt.cells_until(exercise_id)
        for case in oracle.visible_cases(exercise_id):
            work = folder / f"case{case.index}"
            run = CaseRun(template, exercise_id, cells, case, 0, work, limits.case_seconds, limits).run()
            if run.failure and all(each.passed for each in left):
                raise ConfigError(
                    f"the answer to {exercise_id} ends in an error that learners read: {run.failure['message']}"
                )
            if run.failure:
                break
            left.append(oracle.left_behind(exercise_id, case, run.results, run.wire))
    return left


def _fingerprint(exercise_id: str, left: list[Left], count: int) -> Fingerprint:
    """Return the fingerprint, where it is one of a mistake that a check does not name."""
    failed = next((each for each in left if not each.passed), None)
    if failed is None:
        raise ConfigError(f"the answer to {exercise_id} passes its {count} visible cases: no check finds a mistake")
    if failed.hint:
        raise ConfigError(f"a check names this mistake already: {failed.mistake!r}. Its hint: {failed.hint}")
    found = [PASSED if each.passed else CasePrint(each.told, tuple(map(tuple, each.sums))) for each in left]
    return (*found, *[NOTHING] * (count - len(left)))
