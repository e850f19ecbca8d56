"""``labkit build``: from each lesson's source its notebook, its executed solution, its slides; views' programs."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from labkit.errors import LessonError
from labkit.lessons import bundles, drift, executed, readme, slides, student
from labkit.lessons.budget import Budget, budget
from labkit.lessons.course import find_course, select, source_files
from labkit.lessons.drift import Drift
from labkit.lessons.figures import pictures_of
from labkit.lessons.lesson import Lesson
from labkit.lessons.notebook import as_text
from labkit.lessons.source import load
from labkit.progress import Told, untold


@dataclass(frozen=True)
class Built:
    """What building one lesson did.

    Attributes:
        lesson: Its name.
        written: Files whose content changed, relative to the course.
        execution: What became of the solution notebook: "executed", "kept" or "not executed".
        seconds: How long it took.
        takes: What its core holds.
    """

    lesson: str
    written: tuple[str, ...]
    execution: str
    seconds: float
    takes: Budget

    def __str__(self) -> str:
        """Return one line for the terminal."""
        changed = f"wrote {', '.join(self.written)}" if self.written else "nothing changed"
        done = f"{self.lesson}: {changed}; solution {self.execution} ({self.seconds:.1f} s)"
        return f"{done}\n  takes {self.takes}"


@dataclass(frozen=True)
class BuildReport:
    """What one ``labkit build`` did.

    Attributes:
        course: The course's root.
        lessons: One entry a lesson, in order.
        programs: Programs of the views that changed, relative to the course.
    """

    course: Path
    lessons: tuple[Built, ...]
    programs: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return one line a lesson, and one for the views' programs if any changed."""
        programs = [f"views: wrote {', '.join(self.programs)}"] if self.programs else []
        return "\n".join([*programs, *map(str, self.lessons)])


def build(
    course: Path | None = None,
    lessons: Sequence[str] | None = None,
    execute: bool = True,
    *,
    always: bool = False,
    say: Callable[[str], None] = lambda sentence: None,
    told: Told = untold,
) -> BuildReport:
    """Write notebooks/, slides/ and the executed solutions of a course, and its README's minutes; only what differs.

    Where the course is labkit's own repository, also the programs of its views, before anything runs that shows them.

    Args:
        course: A folder in the course; None is the working directory.
        lessons: Numbers, names or paths; None or empty is all.
        execute: Run a solution whose executed notebook does not fit its source. Outputs are kept while every code
            cell is what it was. False leaves solution notebooks alone.
        always: Run every solution, whatever there is.
        say: Told one sentence before each thing that takes time.
        told: Told each cell of a solution before it runs.

    Raises:
        LessonError: If a source is wrong, a solution does not run, or a name means no lesson.
    """
    root = find_course(course, sources=True)
    chosen = _chosen(root, lessons or ())
    programs = bundles.build(root, say)
    kept = {lesson.name: None if always else _kept(lesson, root) for lesson in chosen}
    total = sum(_num_cells(lesson) for lesson in chosen if kept[lesson.name] is None and (execute or always))
    begun = itertools.count()

    def begins(name: str) -> None:
        told(name, next(begun), total)

    built = [_build(lesson, root, kept[lesson.name], execute or always, say, begins) for lesson in chosen]
    return BuildReport(root, tuple(built), tuple(programs))


def check(course: Path | None = None, lessons: Sequence[str] | None = None) -> list[Drift]:
    """Return everything that differs between the sources and what lies in notebooks/, slides/ and solutions/.

    Also what breaks a promise: an execution that is not one clean run, an exercise without a check, and text of an
    answer in what learners get. Writes nothing and runs nothing.

    Args:
        course: A folder in the course; None is the working directory.
        lessons: Numbers, names or paths; None or empty is all.

    Raises:
        LessonError: If a source is wrong or a name means no lesson.
    """
    root = find_course(course, sources=True)
    chosen = _chosen(root, lessons or ())
    found = [each for lesson in chosen for each in drift.lesson_drift(lesson, root)]
    if not lessons:
        found += drift.stray_files({path.stem for path in source_files(root)}, root)
        found += bundles.drift(root)
    try:
        return found + list(drift.leaks(chosen, root))
    except LessonError as error:  # a file that is no notebook, already in found
        return found or [Drift("notebooks", None, str(error).rstrip("."), "labkit build")]


def _chosen(root: Path, names: Sequence[str]) -> list[Lesson]:
    available = source_files(root)
    if not available:
        raise LessonError(f"{root / 'solutions'} has no lesson source; a source is named NN_slug.py.")
    return [load(path) for path in ([select(available, name) for name in names] or available)]


def _num_cells(lesson: Lesson) -> int:
    return sum(cell.kind == "code" for cell in executed.solution_cells(lesson))


def _build(
    lesson: Lesson,
    root: Path,
    kept: object | None,
    execute: bool,
    say: Callable[[str], None],
    begins: Callable[[str], None],
) -> Built:
    start = time.monotonic()
    made: dict[Path, str] = {}
    if (deck := slides.deck(lesson)) is not None:
        made[Path("slides", f"{lesson.name}.md")] = deck
    if (text := readme.read(root)) is not None:
        made[readme.README] = readme.with_row(text, lesson)
    solution = Path("solutions", f"{lesson.name}.ipynb")
    execution = "kept" if kept is not None else "executed" if execute else "not executed"
    written = _write(made, root)
    if execution == "executed":
        say(f"{lesson.name}: running the solution ...")
        kept = executed.execute(lesson, root / "solutions", begins=lambda: begins(lesson.name))
    if kept is not None and execute:
        written += _write({solution: as_text(kept)}, root)
    notebook = student.student_text(lesson, pictures_of(root / solution))
    written = _write({Path("notebooks", f"{lesson.name}.ipynb"): notebook}, root) + written
    return Built(lesson.name, tuple(written), execution, time.monotonic() - start, budget(lesson))


def _kept(lesson: Lesson, root: Path) -> object | None:
    """Return the solution notebook with its earlier outputs, or None if it must run."""
    path = root / "solutions" / f"{lesson.name}.ipynb"
    if not path.exists():
        return None
    try:
        return executed.refreshed(lesson, drift.read_notebook(path))
    except (LessonError, KeyError):  # not a notebook, or not one of ours: written anew
        return None


def _write(files: dict[Path, str], root: Path) -> list[str]:
    """Write what differs, and return the names of those files."""
    written = []
    for name, text in files.items():
        path = root / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            written.append(name.as_posix())
    return written
