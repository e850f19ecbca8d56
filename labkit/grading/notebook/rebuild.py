"""Put a submission's answers into the pristine notebook; nothing else of it counts.

Taken are the source of `exercise` and `design` cells and the text of `write` cells, found by cell id and else by
metadata, and the literals in `predict`, `find` and `why` cells, by reading their syntax trees. Edited checks, metadata,
outputs and extra cells do not matter; they are named.
"""

from __future__ import annotations

import ast
import copy
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from labkit.cells import calls_shell, is_for_ipython
from labkit.checks.question import Literal
from labkit.grading.limits import Limits
from labkit.grading.notebook.notebook_format import load_nbformat
from labkit.grading.submission import SubmittedCell
from labkit.lessons.answer_cell import AnswerCell, read_answer
from labkit.lessons.code import is_stub
from labkit.lessons.lesson import TASKS
from labkit.lessons.prediction_cell import PredictionCell, read_prediction
from labkit.lessons.reach import definitions
from labkit.lessons.write_cell import is_unwritten

_MAX_PREDICTION = 2000


@dataclass(frozen=True)
class Rebuilt:
    """A pristine notebook with a student's answers.

    Attributes:
        notebook: nbformat node, without outputs.
        cells: The cells hidden cases are run with: id, name, kind ("given" or "exercise") and source.
        predictions: Each prediction that was taken, by its name.
        unchanged: Exercises whose cell is as it was handed out.
        notes: What was left out, was missing or came twice, in sentences for the student.
        answered: What each ``find`` and ``why`` says that was answered, by its exercise's slug.
        written: The text of each ``write`` that was written, by its exercise's slug.
        lost: Of each exercise whose cell was not found as it must be, where its answer is, in words.
    """

    notebook: Any
    cells: tuple[Mapping[str, str], ...]
    predictions: Mapping[str, PredictionCell]
    unchanged: tuple[str, ...]
    notes: tuple[str, ...]
    answered: Mapping[str, Mapping[str, Literal]] = field(default_factory=dict)
    written: Mapping[str, str] = field(default_factory=dict)
    lost: Mapping[str, str] = field(default_factory=dict)

    def sources(self) -> dict[str, str]:
        """Return what stands in the cell of each exercise whose functions are run, by the exercise."""
        return {cell["name"]: cell["source"] for cell in self.cells if cell["kind"] == "exercise"}

    def answers(self) -> list[tuple[str, str]]:
        """Return id and source of each cell whose functions are run: what hidden cases are drawn from."""
        return [(cell["id"], cell["source"]) for cell in self.cells if cell["kind"] == "exercise"]


def rebuild(submitted: Sequence[SubmittedCell], pristine: Mapping[str, Any], limits: Limits | None = None) -> Rebuilt:
    """Return the pristine notebook with the answers of `submitted`.

    Args:
        submitted: The cells of the submission.
        pristine: The notebook learners get, as JSON.
        limits: The longest cell that is taken.
    """
    limits = limits or Limits()
    notebook = load_nbformat().from_dict(copy.deepcopy(dict(pristine)))
    code = [cell for cell in submitted if cell.kind == "code"]
    texts = [cell for cell in submitted if cell.kind in ("markdown", "raw")]
    used: set[int] = set()
    notes: list[str] = []
    cells: list[Mapping[str, str]] = []
    predictions: dict[str, PredictionCell] = {}
    unchanged: list[str] = []
    answered: dict[str, Mapping[str, Literal]] = {}
    written: dict[str, str] = {}
    lost: dict[str, str] = {}
    exercises = notebook.metadata.get("labkit", {}).get("exercises", [])
    numbers = {each["id"]: each.get("number") for each in exercises}
    provides = {each["id"]: tuple(each.get("provides", ())) for each in exercises}
    strays = _strays(submitted, notebook.cells)
    for cell in notebook.cells:
        tags = cell.metadata.get("tags", [])
        task = next((tag for tag in tags if tag in TASKS), None)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        elif task is None:
            continue
        if task is not None:
            exercise = str(cell.metadata.labkit.exercise)
            number = str(numbers.get(exercise) or exercise)
            source = _source_of(cell, exercise, number, task, texts if task == "write" else code, used, notes, limits)
            if source is _NOT_FOUND:
                source = _stray(strays, exercise, provides.get(exercise, ()), task, number, used, notes)
                if source is None:
                    lost[exercise] = _where(submitted, cell, exercise, provides.get(exercise, ()), task)
                    notes.append(f"Exercise {number}: {lost[exercise]}, so it counts as not done.")
            if source is None or source.strip() == cell.source.strip():
                unchanged.append(exercise)
            elif task == "write":
                _write(cell, exercise, source, written, unchanged)
            elif task in ("find", "why"):
                _answer(cell, exercise, number, source, answered, unchanged, notes)
            else:
                cell.source = source
                notes += [f"Exercise {number}: {words}" for words in _without_shell(cell)]
            if task in ("exercise", "design"):
                cells.append({"id": cell.id, "name": exercise, "kind": "exercise", "source": source or cell.source})
        elif "predict" in tags:
            _predict(cell, code, used, notes, predictions)
        else:
            _note_edit(cell, code, used, notes, tags)
            if "given" in tags:
                cells.append({"id": cell.id, "name": f"cell {cell.id}", "kind": "given", "source": cell.source})
    originals = {cell.source.strip() for cell in notebook.cells}
    for each in code:
        if each.position not in used and each.source.strip() and each.source.strip() not in originals:
            notes.append(_left_out(each))
    return Rebuilt(notebook, tuple(cells), predictions, tuple(unchanged), tuple(notes), answered, written, lost)


_NOT_FOUND = "\0"


def _strays(submitted: Sequence[SubmittedCell], cells: Sequence[Any]) -> list[SubmittedCell]:
    """Return the code cells that say nowhere what they are: a tool dropped their ids and metadata, or they are new."""
    ours = {cell.id for cell in cells}
    return [each for each in submitted if each.kind == "code" and not each.exercise and each.id not in ours]


def _stray(
    strays: Sequence[SubmittedCell],
    exercise: str,
    provides: Sequence[str],
    task: str,
    number: str,
    used: set[int],
    notes: list[str],
) -> str | None:
    """Return the source of the last cell that answers an exercise by what it defines, as a kernel has it, or None."""
    if task in ("find", "why"):
        fits = [each for each in strays if (read := _sane_answer(each.source, exercise)) and read.exercise == exercise]
    elif provides:
        fits = [each for each in strays if set(provides) <= _defined(each.source)]
    else:
        fits = []
    if not fits:
        return None
    taken = next((each for each in reversed(fits) if not is_stub(_python(each.source))), fits[-1])
    used.update(each.position for each in fits)
    notes.append(f"Exercise {number}: cell {taken.position} of your file was taken, by what it holds: it has no marks.")
    return taken.source


def _where(submitted: Sequence[SubmittedCell], cell: Any, exercise: str, provides: Sequence[str], task: str) -> str:
    """Return in words where an answer is that cannot be taken."""
    wanted, kind = ("Markdown", "text") if task == "write" else ("code", "code")
    for each in submitted:
        if (each.kind == "code") == (kind == "code"):
            continue
        begins = provides and all(re.search(rf"^\s*(?:def|class) {name}\b", each.source, re.M) for name in provides)
        if each.id == cell.id or (each.exercise == exercise and task in each.tags) or begins:
            held = "code" if each.kind == "code" else "Markdown" if each.kind == "markdown" else "raw text"
            return f"cell {each.position} of the file holds it as {held}; make it a {wanted} cell and hand in again"
    return "its cell was not found"


def _defined(source: str) -> set[str]:
    try:
        return set(definitions(ast.parse(_python(source)).body))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return set()


def _python(source: str) -> str:
    """Return a cell without the lines that only IPython understands."""
    return "".join("\n" if is_for_ipython(line) else line for line in source.splitlines(keepends=True))


def _without_shell(cell: Any) -> list[str]:
    """Let a cell start no program in the notebook that is run, and return what is told of that."""
    try:
        ast.parse(cell.source)
        return []
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        lines = cell.source.splitlines(keepends=True)
    calls = [line.strip() for line in lines if calls_shell(line)]
    cell.source = "".join(f"# {line}" if calls_shell(line) else line for line in lines)
    return [
        f"`{call[:60]}` did nothing: where notebooks are graded there is no shell and no network." for call in calls
    ]


def _source_of(
    cell: Any,
    exercise: str,
    number: str,
    task: str,
    code: Sequence[SubmittedCell],
    used: set[int],
    notes: list[str],
    limits: Limits,
) -> str | None:
    found = [each for each in code if each.id == cell.id]
    by_metadata = [each for each in code if each.exercise == exercise and task in each.tags and each.id != cell.id]
    if not found and by_metadata:
        found, by_metadata = by_metadata[:1], by_metadata[1:]
    if not found:
        return _NOT_FOUND
    taken = found[0]
    used.update(each.position for each in found + by_metadata)
    if len(found) + len(by_metadata) > 1:
        others = ", ".join(str(each.position) for each in found[1:] + by_metadata)
        notes.append(
            f"Exercise {number} has more than one cell; cell {taken.position} was taken, not cell {others} of the file."
        )
    if len(taken.source.encode()) > limits.cell_source_bytes:
        notes.append(
            f"Exercise {number}: its cell is {len(taken.source) >> 10} KB long; "
            f"the limit is {limits.cell_source_bytes >> 10} KB, so it counts as not done."
        )
        return None
    return taken.source


def _write(cell: Any, exercise: str, source: str, written: dict[str, str], unchanged: list[str]) -> None:
    """Take what a learner wrote; the notebook that is run shows it, and nothing runs of it."""
    if is_unwritten(source):
        unchanged.append(exercise)
        return
    written[exercise] = cell.source = source


def _answer(
    cell: Any,
    exercise: str,
    number: str,
    source: str,
    answered: dict[str, Mapping[str, Literal]],
    unchanged: list[str],
    notes: list[str],
) -> None:
    """Take the literals of a learner's answer, for the fields that the notebook asks for."""
    ours, theirs = read_answer(cell.source), _sane_answer(source, exercise)
    if ours is None or theirs is None:
        notes.append(f"Exercise {number}: its answer is not a plain value such as 3 or 'send', so it does not count.")
        unchanged.append(exercise)
        return
    if unasked := [name for name in theirs.fields if name not in ours.fields]:
        notes.append(f"Exercise {number}: {', '.join(unasked) or 'a value without a name'} was not asked for.")
    taken = {name: theirs.fields.get(name) for name in ours.fields}
    if all(value is None for value in taken.values()):
        unchanged.append(exercise)
        return
    answered[exercise] = taken
    cell.source = ours.source(taken)


def _sane_answer(source: str, exercise: str) -> AnswerCell | None:
    found = read_answer(source) if len(source) <= _MAX_PREDICTION else None
    if found is None or found.exercise != exercise:
        return None
    finite = (not isinstance(value, float) or math.isfinite(value) for value in found.fields.values())
    return found if all(finite) else None


def _predict(
    cell: Any, code: Sequence[SubmittedCell], used: set[int], notes: list[str], predictions: dict[str, PredictionCell]
) -> None:
    ours = next(filter(None, map(read_prediction, ast.parse(cell.source).body)), None)
    found = [each for each in code if each.id == cell.id]
    used.update(each.position for each in found)
    if ours is None or not found:
        return
    value = _literal(found[0].source, ours)
    if value is _NO_LITERAL:
        notes.append(f"The prediction {ours.name} is not a plain value such as 0.5, so it does not count.")
        return
    predictions[ours.name] = replace(ours, value=value)
    cell.source = ours.source(value)


_NO_LITERAL = object()


def _literal(source: str, ours: PredictionCell) -> object:
    """Return the number, string, flag or None that `source` guesses in place of `ours`, else `_NO_LITERAL`."""
    if len(source) > _MAX_PREDICTION:
        return _NO_LITERAL
    try:
        statements = ast.parse(source).body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return _NO_LITERAL
    for found in filter(None, map(read_prediction, statements)):
        if (found.name, found.is_call) == (ours.name, ours.is_call):
            value = found.value
            if value is Ellipsis or not isinstance(value, int | float | str | bool | None):
                return _NO_LITERAL
            return _NO_LITERAL if isinstance(value, float) and not math.isfinite(value) else value
    return _NO_LITERAL


def _note_edit(cell: Any, code: Sequence[SubmittedCell], used: set[int], notes: list[str], tags: Sequence[str]) -> None:
    found = [each for each in code if each.id == cell.id]
    used.update(each.position for each in found)
    if found and found[0].source.strip() != cell.source.strip():
        kind = next((tag for tag in ("check", "given", "figure") if tag in tags), "")
        notes.append(
            f"The {kind + ' ' if kind else ''}cell {cell.id} was changed (it begins {_first_line(found[0].source)!r}); "
            "grading uses the original. Only exercise cells are taken."
        )


def _left_out(cell: SubmittedCell) -> str:
    begins = f"Cell {cell.position} of your file (it begins {_first_line(cell.source)!r})"
    if set(cell.tags) & {"given", "check", "predict", "parameters", "figure"}:
        return f"{begins} differs from the notebook that is graded; grading uses the original."
    return (
        f"{begins} is not one of the notebook's exercise cells and was left out. "
        "What an answer needs must stand in its own cell or in an earlier exercise cell."
    )


def _first_line(source: str) -> str:
    lines = [line.strip() for line in source.splitlines() if line.strip()]
    return lines[0][:60] if lines else ""
