"""``labkit catch-up``, ``labkit reset``, ``labkit pack``: a working start for whoever is behind, own work kept.

Nothing of a learner's is overwritten: before a notebook changes, a copy of it goes into ``kept/``.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat

from labkit.errors import ConfigError, LessonError
from labkit.lessons.code import is_stub
from labkit.lessons.course import find_course, select, source_files
from labkit.lessons.cuts import without_markers
from labkit.lessons.lesson import CODE_TASKS, TASKS
from labkit.lessons.pristine import pristine, pristine_exercise
from labkit.lessons.source import load
from labkit.links import refuse_links
from labkit.words import plainly

if TYPE_CHECKING:
    from labkit.lessons.presentation import Workshop

Say = Callable[[str], None]
_FORMAT = 1
MARK = "# From the class's pack. Write your own in its place, and it counts as yours.\n"
"""The first line of a cell that was filled from a pack."""


@dataclass(frozen=True)
class Pack:
    """Answers of one lesson, as an instructor issues them to a room that goes on.

    Attributes:
        lesson: The lesson's name.
        answers: Exercise -> source of its cell.
        earns: How many percent of its points a cell earns that is handed in as the pack filled it.
    """

    lesson: str
    answers: dict[str, str]
    earns: int = 0


def write_pack(
    lesson: str, path: Path, course: Path | None = None, *, through: str | None = None, earns: int = 0
) -> Pack:
    """Return the pack of a lesson's answers, written as a JSON file.

    Args:
        lesson: Its number or name.
        path: The file.
        course: Somewhere in the course.
        through: The last exercise whose answer is in it, "2.6" or "ring_sum"; None for all.
        earns: How many percent of its points a cell earns that is handed in as it was filled.

    Raises:
        LessonError: If there is no such lesson or exercise here (a student release has no answers to pack).
        ConfigError: If `earns` is no percentage.
    """
    if not 0 <= earns <= 100:
        raise ConfigError(f"a cell from a pack earns 0 to 100 % of its points, not {earns}")
    source = select(source_files(find_course(course, sources=True)), lesson)
    loaded = load(source)
    slugs = [each.id for each in loaded.manifest.exercises]
    if through is not None:
        last = next((each.id for each in loaded.manifest.exercises if through in (each.id, each.number)), None)
        if last is None:
            there = ", ".join(f"{each.number} {each.id}" for each in loaded.manifest.exercises)
            raise LessonError(f"{source.stem} has no exercise {through!r}; there are: {there}")
        slugs = slugs[: slugs.index(last) + 1]
    cells = [cell for cell in loaded.cells if cell.is_code_exercise and cell.exercise in slugs]
    pack = Pack(source.stem, {str(cell.exercise): without_markers(cell.source) for cell in cells}, earns)
    content = {"labkit_pack": _FORMAT, "lesson": pack.lesson, "earns": earns, "answers": pack.answers}
    refuse_links(path, "the pack")
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return pack


def write_packs(plan: Workshop, folder: Path, course: Path | None = None, *, earns: int = 0) -> list[tuple[Path, Pack]]:
    """Return the packs that a workshop needs: of each lesson the answers through the last exercise the room does.

    Args:
        plan: The workshop's.
        folder: Where they go, as ``lesson_NN.pack``.
        course: Somewhere in the course.
        earns: As for `write_pack`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sources = source_files(find_course(course, sources=True))
    wanted: dict[str, list[str]] = {}
    for part in plan.parts:
        if part.lesson:
            wanted.setdefault(select(sources, part.lesson).stem, []).extend(part.exercises)
    written = []
    for lesson, exercises in wanted.items():
        path = folder / f"lesson_{lesson[:2]}.pack"
        order = [each.id for each in load(select(sources, lesson)).manifest.exercises]
        last = max(exercises, key=lambda each: order.index(each) if each in order else -1, default=None)
        written.append((path, write_pack(lesson, path, course, through=last, earns=earns)))
    return written


def read_pack(path: Path) -> Pack:
    """Return a pack.

    Raises:
        LessonError: If the file is no pack, or one of a later format.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        answers = {str(exercise): str(source) for exercise, source in content["answers"].items()}
        if content["labkit_pack"] != _FORMAT:
            raise LessonError(f"{path} was written by another version of labkit; ask your instructor for a new one.")
        earns = int(content.get("earns", 0))
        if not 0 <= earns <= 100:
            raise ValueError(f"a cell of it earns {earns} percent")
        return Pack(str(content["lesson"]), answers, earns)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, LessonError):
            raise
        raise LessonError(f"{path} is not a pack of answers ({plainly(error)}); `labkit pack` writes one.") from error


def catch_up(lesson: str, notebooks: Path, pack: Path | None, say: Say) -> None:
    """Make a learner ready for a lesson.

    The lesson's notebook is put there if it is missing. Exercises of the pack's lesson that the learner has not begun
    get the pack's answers; those they wrote stay theirs. Without a pack torch's own implementations stand in for what
    is missing: the lesson's ``use_mine`` says so.

    Args:
        lesson: The lesson to begin, "03".
        notebooks: The learner's folder.
        pack: A pack of answers that the instructor issued, or None.
        say: Told what was done, line by line.

    Raises:
        LessonError: If the lesson or the pack is not there or cannot be read.
    """
    name, handed_out = pristine(lesson, notebooks)
    path = notebooks / f"{name}.ipynb"
    if pack is not None:
        _fill(read_pack(pack), notebooks, say)
    if path.is_file():
        say(f"{path.name}: yours, unchanged.")
    else:
        write_notebook(path, handed_out)
        say(f"{path.name}: a fresh copy.")
    if pack is None and any("use_mine" in _source(cell) for cell in handed_out.cells):
        say("For what you have not built yet, torch's own is used. To use yours, set use_mine = True in the notebook.")


def _fill(pack: Pack, notebooks: Path, say: Say) -> None:
    """Put a pack's answers where the learner's notebook still has the stubs."""
    path = notebooks / f"{pack.lesson}.ipynb"
    if not path.is_file():
        write_notebook(path, pristine(pack.lesson[:2], notebooks)[1])
        say(f"{path.name}: a fresh copy.")
    notebook = _read(path)
    filled: list[str] = []
    own: list[str] = []
    earlier: list[str] = []
    for exercise, cell in exercise_cells(notebook, CODE_TASKS):
        if not is_stub(_source(cell)):
            (earlier if MARK.strip() in _source(cell) else own).append(exercise)
        elif exercise in pack.answers:
            cell.source = MARK + pack.answers[exercise]
            cell.outputs, cell.execution_count = [], None
            filled.append(exercise)
    if filled:
        say(f"{kept(path, 'before-catch-up').name} in kept/: your notebook as it was.")
        write_notebook(path, notebook)
    before = f"{', '.join(earlier)} came from a pack before; " if earlier else ""
    say(f"{path.name}: {', '.join(filled) or 'nothing'} from the pack; {before}{', '.join(own) or 'none'} stay yours.")
    if filled:
        share = f"{pack.earns} % of their points" if pack.earns else "no points"
        say(
            f"Handed in unchanged, cells from the pack (their first line says so) earn {share}. Your own always count "
            "in full."
        )


def reset(exercise: str, notebooks: Path, say: Say) -> None:
    """Put one exercise's cell back as it was handed out.

    Args:
        exercise: Its slug or its number, "ring_sum" or "2.6".
        notebooks: The learner's folder.
        say: Told what was done, line by line.

    Raises:
        LessonError: If there is no such exercise or notebook; nothing has changed then.
    """
    name, handed_out, exercise = pristine_exercise(exercise, notebooks)
    stub = next(_source(cell) for each, cell in exercise_cells(handed_out) if each == exercise)
    path = notebooks / f"{name}.ipynb"
    notebook = _read(path)
    cell = next((cell for each, cell in exercise_cells(notebook) if each == exercise), None)
    if cell is None:
        raise LessonError(
            f"{path.name} has lost the cell of exercise {exercise}; rename the notebook, then run `labkit catch-up "
            f"{name[:2]}`."
        )
    if _source(cell) == stub:
        say(f"{exercise} is as it was handed out.")
        return
    say(f"{kept(path, f'before-reset-{exercise}').name} in kept/: your notebook as it was.")
    cell.source = stub
    if cell.cell_type == "code":
        cell.outputs, cell.execution_count = [], None
    write_notebook(path, notebook)
    say(f"{path.name}: {exercise} starts over. In JupyterLab: File, Reload Notebook from Disk.")


def exercise_cells(notebook: Any, tags: Collection[str] = TASKS) -> Iterator[tuple[str, Any]]:
    """Yield (slug, cell) of each cell in which a learner earns something."""
    for cell in notebook.cells:
        exercise = cell.metadata.get("labkit", {}).get("exercise")
        if exercise and not set(tags).isdisjoint(cell.metadata.get("tags", [])):
            yield str(exercise), cell


def _source(cell: Any) -> str:
    return str(cell.source)


def _read(path: Path) -> Any:
    if not path.is_file():
        raise LessonError(f"There is no {path.name} in {path.parent}; `labkit catch-up {path.name[:2]}` puts it there.")
    try:
        return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    except Exception as error:
        raise LessonError(f"{path.name} cannot be read as a notebook ({error}); it was left as it is.") from error


def kept(path: Path, why: str) -> Path:
    """Return a copy of the notebook in ``kept/``, under a name that is free."""
    number = 1
    while (copy := path.parent / "kept" / f"{path.stem}.{why}{'' if number == 1 else f'-{number}'}.ipynb").exists():
        number += 1
    copy.parent.mkdir(exist_ok=True)
    shutil.copyfile(path, copy)
    return copy


def write_notebook(path: Path, notebook: Any) -> None:
    """Write a notebook whole, or leave what was there."""
    text: str = nbformat.writes(notebook, version=4)  # type: ignore[no-untyped-call]
    half = path.with_suffix(".half")
    half.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
    half.replace(path)
