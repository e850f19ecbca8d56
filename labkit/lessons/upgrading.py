"""``labkit upgrade``: notebooks begun in the first edition go over to this one, by slug. Nothing written is lost.

The notebook as it was goes into ``kept/``; answers and guesses go to the lesson that has the exercise or the guess
now. What has no place there any more, and cells that the learner added, stand at the end.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat

from labkit.errors import LessonError
from labkit.lessons.catching_up import Say, exercise_cells, kept, write_notebook
from labkit.lessons.code import is_stub
from labkit.lessons.first_edition import GUESSES, SLUGS
from labkit.lessons.lesson import CODE_TASKS
from labkit.lessons.manifest import from_metadata
from labkit.lessons.prediction_cell import PredictionCell, read_prediction
from labkit.lessons.pristine import ORIGINALS, all_pristine

_OURS = re.compile(r"(exercise|check|predict|given|prose|code|parameters|figure)(-|$)")


@dataclass
class Work:
    """What a learner wrote in a notebook of the first edition.

    Attributes:
        answers: By the exercise's slug: the source of its cell.
        guesses: By the guess's slug.
        others: Cells of their own.
    """

    answers: dict[str, str] = field(default_factory=dict)
    guesses: dict[str, PredictionCell] = field(default_factory=dict)
    others: list[Any] = field(default_factory=list)


def upgrade(notebooks: Path, say: Say) -> None:
    """Carry every notebook of the first edition in a folder over; running it again finds nothing to do.

    Args:
        notebooks: The learner's folder.
        say: Told what was done, line by line.

    Raises:
        LessonError: If there is no such folder, or nothing that this edition handed out, or a notebook that cannot be
            read; it then stays as it was.
    """
    if not notebooks.is_dir():
        raise LessonError(f"There is no folder {notebooks}; name the one with your notebooks: --notebooks DIR.")
    old = [path for path in sorted(notebooks.glob("[0-9][0-9]_*.ipynb")) if _begun_in_the_first_edition(path)]
    if not old:
        say("There is no notebook of the first edition here.")
        return
    new = [(name, each) for name, each in all_pristine(notebooks) if not _is_of_the_first_edition(name, each)]
    if not new:
        raise LessonError(
            f"The notebooks in {notebooks / ORIGINALS} were handed out with the first edition too. Run `labkit lab "
            f"--folder {notebooks.parent}`, which puts this edition's beside them and leaves yours; then this again."
        )
    works = {path: read_work(_read(path)) for path in old}
    for path, work in works.items():
        copy = kept(path, "first-edition")
        path.unlink()
        say(f"{path.name}: as it was in kept/{copy.name}; {len(work.answers)} answers, {len(work.guesses)} guesses.")
    for name, handed_out in new:
        there = notebooks / f"{name}.ipynb"
        target = _read(there) if there.is_file() else handed_out
        filled = [slug for work in works.values() for slug in _fill(target, work)]
        same = [work for path, work in works.items() if path.stem.partition("_")[2] == name.partition("_")[2]]
        ends = [cell for work in same for cell in _at_the_end(work, new)]
        if filled or same:
            target.cells += ends
            write_notebook(there, target)
            say(
                f"{there.name}: {', '.join(filled) or 'nothing carried over'}"
                f"{'; your own cells at its end' if ends else ''}."
            )
    for path in works:
        if not any(path.stem.partition("_")[2] == name.partition("_")[2] for name, _ in new):
            say(f"{path.name}: this edition has no such lesson; what else you wrote there is in kept/.")


def read_work(notebook: Any) -> Work:
    """Return what a learner wrote in a notebook of the first edition."""
    work = Work()
    for cell in notebook.cells:
        tags = cell.metadata.get("tags", ())
        number = str(cell.metadata.get("labkit", {}).get("exercise", ""))
        source = str(cell.source)
        if "exercise" in tags and number in SLUGS:
            if not is_stub(source):
                work.answers[SLUGS[number]] = source
        elif "predict" in tags:
            if (guess := _guess(source)) is not None and guess.value is not None:
                work.guesses[GUESSES.get(guess.name, guess.name)] = guess
        elif source.strip() and not _OURS.match(str(cell.get("id", ""))):
            work.others.append(cell)
    return work


def _fill(notebook: Any, work: Work) -> list[str]:
    """Put what has its place here where the notebook still has stubs, take it out of the work, and return its slugs."""
    filled = []
    for slug, cell in exercise_cells(notebook, CODE_TASKS):
        if slug in work.answers and is_stub(str(cell.source)):
            cell.source = work.answers.pop(slug)
            filled.append(slug)
    for cell in notebook.cells:
        if "predict" in cell.metadata.get("tags", ()) and (asked := _guess(str(cell.source))) is not None:
            guess = work.guesses.get(asked.name)
            if guess is not None and asked.value is None:
                cell.source = asked.source(guess.value)
                filled.append(asked.name)
                del work.guesses[asked.name]
    return filled


def _at_the_end(work: Work, new: list[tuple[str, Any]]) -> list[Any]:
    """Return cells for what has no place any more."""
    asked = {slug for _, notebook in new for slug, _ in exercise_cells(notebook, CODE_TASKS)}
    cells: list[Any] = []
    for slug, source in work.answers.items():
        if slug not in asked:
            cells.append(nbformat.v4.new_code_cell(f"# {slug}, of the first edition\n{source}"))  # type: ignore[no-untyped-call]
    for cell in work.others:
        make = nbformat.v4.new_code_cell if cell.cell_type == "code" else nbformat.v4.new_markdown_cell
        cells.append(make(str(cell.source)))  # type: ignore[no-untyped-call]
    title = "## From the first edition\n\nYour own cells, and answers to exercises that this edition does not have."
    return [nbformat.v4.new_markdown_cell(title), *cells] if cells else []  # type: ignore[no-untyped-call]


def _guess(source: str) -> PredictionCell | None:
    """Return the guess in a cell; of the first edition its name is a number."""
    try:
        statements = ast.parse(source).body
    except SyntaxError:
        return None
    for statement in statements:
        if (found := read_prediction(statement)) is not None:
            return found
        call = statement.value if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) else None
        if call is not None and ast.unparse(call.func) == "labkit.predict" and len(call.args) == 2:
            try:
                name, value = (ast.literal_eval(each) for each in call.args)
                unit = next((ast.literal_eval(each.value) for each in call.keywords if each.arg == "unit"), "")
            except (ValueError, TypeError):
                return None
            return PredictionCell(str(name), value, str(unit), is_call=True)
    return None


def _begun_in_the_first_edition(path: Path) -> bool:
    """Return whether a file is a notebook of the first edition; one that cannot be read is not."""
    try:
        return _is_of_the_first_edition(path.name, _read(path))
    except LessonError:
        return False


def _is_of_the_first_edition(name: str, notebook: Any) -> bool:
    """Return whether a notebook's exercises are called by numbers."""
    try:
        exercises = from_metadata(notebook.metadata, name).exercises
    except LessonError:
        return False
    return bool(exercises) and all(each.id in SLUGS for each in exercises)


def _read(path: Path) -> Any:
    try:
        return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    except Exception as error:
        raise LessonError(f"{path.name} cannot be read as a notebook ({error}); it was left as it is.") from error
