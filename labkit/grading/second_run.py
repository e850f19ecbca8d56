"""No mistake is paid twice: what failed beside something it needs is run once more, with reference answers for that.

Of the second run only pass or fail comes out: one bit for each exercise and attempt. It is the one case in which an
answer enters a process of the student's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from labkit.grading.course import Course
from labkit.grading.notebook.notebook_run import NotebookRun
from labkit.grading.notebook.rebuild import Rebuilt
from labkit.grading.score import ExerciseResult, StudentResult
from labkit.lessons.manifest import Manifest

Cell = Mapping[str, str]


@dataclass(frozen=True)
class Begun:
    """What is known of a submission before its hidden cases.

    Attributes:
        name: Its name.
        digest: A hash of the file.
        problem: Why nothing could be read, or "".
        notes: What was noticed in reading.
        rebuilt: Its cells; None where nothing could be read.
        run: What became of its notebook, where that was run.
        seconds: How long it took.
    """

    name: str
    digest: str
    problem: str
    notes: tuple[str, ...]
    rebuilt: Rebuilt | None
    run: NotebookRun | None
    seconds: float


@dataclass(frozen=True)
class FirstRun:
    """What is known of a submission before its second run, if it has one.

    Attributes:
        result: What became of it, packs not counted yet.
        rebuilt: Its cells; None where nothing could be read.
        seconds: How long it took.
        case_seconds: How long its hidden cases took of that.
    """

    result: StudentResult
    rebuilt: Rebuilt | None
    seconds: float
    case_seconds: float

    def is_run_twice(self, course: Course) -> bool:
        """Return whether something failed that stands on what failed, too."""
        results = self.result.exercises
        return any(to_replace(course.manifest, each, results, course.references) for each in results)


def stands_on(manifest: Manifest, exercise_id: str) -> set[str]:
    """Return the exercises that an answer needs, and those which they need."""
    found: set[str] = set()
    waiting = [exercise_id]
    while waiting:
        for slug in manifest.exercise(waiting.pop()).needs:
            if slug not in found:
                found.add(slug)
                waiting.append(slug)
    return found


def to_replace(
    manifest: Manifest, result: ExerciseResult, results: Sequence[ExerciseResult], references: Mapping[str, str]
) -> tuple[str, ...]:
    """Return for which exercises a failed one is given reference answers, in the lesson's order; () for none.

    Args:
        manifest: The lesson's.
        result: What became of the exercise.
        results: What became of all.
        references: The answers there are, by slug.
    """
    if result.state != "failed":
        return ()
    needed = stands_on(manifest, result.exercise.id)
    broken = [each.exercise.id for each in results if each.state in ("failed", "not_done")]
    return tuple(slug for slug in broken if slug in needed and slug in references)


def with_references(cells: Sequence[Cell], references: Mapping[str, str], slugs: Sequence[str]) -> tuple[Cell, ...]:
    """Return a submission's cells, those of some exercises with the reference answer in place of the student's."""
    return tuple(
        {**cell, "source": references[cell["name"]]} if cell["kind"] == "exercise" and cell["name"] in slugs else cell
        for cell in cells
    )
