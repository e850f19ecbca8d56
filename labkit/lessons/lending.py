"""``labkit.lend``: a working stand-in for an exercise somebody is stuck at, so that the rest of the notebook runs."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labkit.checks.notebook import LENT
from labkit.errors import LessonError
from labkit.lessons.catching_up import read_pack
from labkit.lessons.course import brought_course, find_course, source_files
from labkit.lessons.cuts import without_markers
from labkit.lessons.manifest import Exercise, Manifest
from labkit.lessons.named import exercises_called, in_folder
from labkit.lessons.source import load
from labkit.lessons.unsolved import Need
from labkit.slugs import is_slug
from labkit.words import join


@dataclass(frozen=True)
class Lent:
    """What lending did; shown by the notebook."""

    text: str

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Answers:
    """Answers of one lesson.

    Attributes:
        manifest: Its exercises.
        sources: By slug: the source of the exercise's cell, solved; of a ``write``, the model answer.
    """

    manifest: Manifest
    sources: dict[str, str] = field(default_factory=dict)


def lend(exercise_id: str, namespace: dict[str, Any] | None = None) -> Lent:
    """Put a working stand-in for an exercise into the notebook; its points are given up as long as it is lent.

    It comes from the course's own solutions where there are any, else from the class's pack, if it lies beside the
    notebook. For an exercise that asks for sentences, it shows the model answer.

    Args:
        exercise_id: Its slug, "ring_plan"; its number, "2.3", or a function it asks for will do, too.
        namespace: Where it goes; None is the notebook's.
    """
    named = [] if is_slug(exercise_id) and answers_with(exercise_id) is not None else exercises_called(exercise_id)
    if len(named) == 1:
        exercise_id = named[0].id
    if not is_slug(exercise_id):
        return Lent(
            f'labkit.lend takes an exercise\'s name in quotes, labkit.lend("ring_plan"); this is {exercise_id!r}.'
        )
    found = answers_with(exercise_id)
    if found is None:
        return Lent(_nothing_to_lend(exercise_id))
    exercise = found.manifest.exercise(exercise_id)
    if exercise.kind == "write":
        return Lent(f"{_named(exercise)}, a model answer to compare yours with:\n\n{found.sources[exercise_id]}")
    if not exercise.is_code:
        return Lent(f"{_named(exercise)} is for you to look at; nothing below needs it, so there is nothing to lend.")
    target = _notebook() if namespace is None else namespace
    try:
        _put(found, exercise, target)
    except NameError as error:
        return Lent(f"{_named(exercise)} needs cells above it ({error}). Run them first, then this one again.")
    return Lent(
        f"{_named(exercise)} is lent: this notebook now has a working {join(exercise.provides)}, and cells that need "
        f"it run. It earns no points while it is lent. Write your own any time, and run its cell."
    )


def _put(found: Answers, exercise: Exercise, target: dict[str, Any]) -> None:
    """Put what an exercise's answer defines into a notebook; what it stands on stays out of it."""
    own = dict(target)
    needs = _all_needs(found, exercise)
    for each in _before(found.manifest, exercise.id):
        if each.id in needs:
            _run(found.sources[each.id], each.id, own)
        elif each.id in found.sources:  # an answer may use what another answer has beside what it was asked for
            others = dict(own)
            _run(found.sources[each.id], each.id, others)
            own = others | own
    before = dict(own)
    _run(found.sources[exercise.id], exercise.id, own)
    target.update({name: value for name, value in own.items() if before.get(name) is not value})


def what_to_do(needs: Sequence[Need]) -> str:
    """Return what a cell says that needs exercises nobody has written yet."""
    listed: list[str] = []
    for need in needs:
        slug = _slug_of(need)
        last = f'take it on loan: labkit.lend("{slug}")' if _can_be_lent(slug) else "ask for the class's pack"
        what = f"This cell needs {need.name} (Exercise {need.number})"
        listed.append(f'{what}: write it, ask for a hint: labkit.hint("{slug}"), or {last}.')
    return "\n".join([*listed, "Then run this cell again. Everything that does not need it runs."])


def answers_with(exercise_id: str) -> Answers | None:
    """Return the answers of the lesson that has this exercise, if they are to be had here."""
    if (path := source_with(exercise_id)) is not None:
        lesson = load(path)
        sources = {str(cell.exercise): cell for cell in lesson.cells if cell.exercise and cell.role != "check"}
        return Answers(lesson.manifest, {slug: without_markers(cell.source) for slug, cell in sources.items()})
    for pack in packs_in(Path.cwd()):
        manifest = _manifest(Path.cwd(), pack.lesson)
        if exercise_id in pack.answers and manifest is not None:
            return Answers(manifest, pack.answers)
    return None


def _can_be_lent(exercise_id: str) -> bool:
    return source_with(exercise_id) is not None or any(exercise_id in pack.answers for pack in packs_in(Path.cwd()))


def source_with(exercise_id: str) -> Path | None:
    """Return the lesson source that has this exercise with its answer, if there is one here."""
    written = f'exercise="{exercise_id}"'
    return next((path for path in _sources() if written in path.read_text(encoding="utf-8")), None)


def _sources() -> list[Path]:
    """Return the lesson sources of the course that the notebook is in, else of the one that labkit brings."""
    try:
        root = find_course(sources=True)
    except LessonError:
        root = brought_course()
    return source_files(root) or source_files(brought_course())


def packs_in(folder: Path) -> list[Any]:
    """Return the packs that lie in a folder."""
    found = []
    for path in sorted(folder.glob("*.json")):
        if '"labkit_pack"' in path.read_text(encoding="utf-8", errors="replace")[:200]:
            found.append(read_pack(path))
    return found


def _manifest(folder: Path, lesson: str) -> Manifest | None:
    return next((each for each in in_folder(folder) if each.lesson == lesson), None)


def _slug_of(need: Need) -> str:
    """Return the slug of an exercise that a stub's number and a function's name tell."""
    manifests = in_folder(Path.cwd())
    if not manifests:
        manifests = [
            load(path).manifest for path in _sources() if path.stem[:2] == need.number.partition(".")[0].zfill(2)
        ]
    exercises = [each for manifest in manifests for each in manifest.exercises if need.name in each.provides]
    same = [each for each in exercises if each.number == need.number]
    return (same or exercises)[0].id if exercises else need.name


def _all_needs(answers: Answers, exercise: Exercise) -> list[str]:
    """Return the slugs of all that an answer stands on, in the lesson's order."""
    wanted, waiting = set(), list(exercise.needs)
    while waiting:
        slug = waiting.pop()
        if slug not in wanted and slug in answers.sources:
            wanted.add(slug)
            waiting += answers.manifest.exercise(slug).needs
    return [each.id for each in answers.manifest.exercises if each.id in wanted]


def _before(manifest: Manifest, exercise_id: str) -> list[Exercise]:
    """Return the exercises above one of a lesson that are code."""
    ids = [each.id for each in manifest.exercises]
    return [each for each in manifest.exercises[: ids.index(exercise_id)] if each.is_code]


def _run(source: str, slug: str, namespace: dict[str, Any]) -> None:
    file = f"{LENT}{slug}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec", dont_inherit=True), namespace)


def _notebook() -> dict[str, Any]:
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    found: dict[str, Any] = sys.modules["__main__"].__dict__ if shell is None else shell.user_ns
    return found


def _named(exercise: Exercise) -> str:
    return f"{exercise.id} (Exercise {exercise.number})"


def _nothing_to_lend(exercise_id: str) -> str:
    return (
        f'There is nothing to lend for {exercise_id} here. labkit.hint("{exercise_id}") gives up to three hints. In a '
        "class, ask for the pack; put the file beside this notebook, and run this cell again."
    )
