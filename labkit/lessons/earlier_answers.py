"""mine(): the learner's own function out of an earlier lesson's notebook, else torch's or one on loan."""

from __future__ import annotations

import ast
import json
import linecache
import sys
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from labkit.cells import as_python
from labkit.errors import LessonError
from labkit.lessons.cuts import without_markers
from labkit.lessons.found_answers import Asked, take
from labkit.lessons.lending import packs_in, source_with
from labkit.lessons.manifest import Exercise, Manifest, from_metadata
from labkit.lessons.needed_code import names_made, needed, reached
from labkit.lessons.source import load
from labkit.lessons.statements import Code, Statement
from labkit.lessons.submitted_cell import SubmittedCell

Function = TypeVar("Function", bound=Callable[..., Any])

_LONGEST = 1 << 20
"""Characters of a cell; a longer one is not read."""


def mine(
    exercise_id: str, otherwise: Function | None = None, *, name: str | None = None, folder: Path | None = None
) -> Function | Any:
    """Return your own function of an earlier exercise, else `otherwise`, else one on loan; it says which.

    Your notebook of that lesson must lie beside this one. Its given cells and your answers run in a module of their
    own, with what the answers need of other cells: a helper, a constant, an import.

    Args:
        exercise_id: Its slug, "drop_in_all_reduce".
        otherwise: What to use instead, such as torch's own:
            ``labkit.mine("drop_in_all_reduce", otherwise=dist.all_reduce)``. None is what `labkit.lend` would lend.
        name: Which function, where the exercise asks for several.
        folder: Where the notebooks are; None is the folder this notebook runs in.

    Raises:
        LessonError: If a notebook that may have it cannot be read, the exercise has no such function, or there is
            nothing to lend.
    """
    found = _notebook_with(exercise_id, folder or Path.cwd())
    if found is None:
        return _instead(f"{exercise_id}: no notebook in this folder has this exercise", otherwise, exercise_id, name)
    path, cells, manifest = found
    wanted = _wanted(manifest, exercise_id, name)
    namespace, problem = _run(path, cells, manifest, exercise_id)
    if not problem and not callable(namespace.get(wanted)):
        problem = f"defines no {wanted}"
    if problem:
        return _instead(f"{exercise_id}: {path.name} {problem}", otherwise, exercise_id, name, found)
    return _say(f"{exercise_id}: using your {wanted} from {path.name}.", namespace[wanted])


_Found = tuple[Path, list[Any], Manifest]


def _instead(why: str, otherwise: Any, exercise_id: str, name: str | None, found: _Found | None = None) -> Any:
    """Return what is used where a learner has no function of their own; say why and which."""
    if otherwise is not None:
        return _say(f"{why}; using {getattr(otherwise, '__name__', repr(otherwise))} in its place.", otherwise)
    lent = _on_loan(exercise_id, name, found)
    if lent is None:
        raise LessonError(
            f"{why}, and there is nothing to lend: write it, or put your class's pack beside this notebook."
        )
    return _say(f"{why}; {lent.__name__} is lent.", lent)


def _on_loan(exercise_id: str, name: str | None, found: _Found | None) -> Any:
    """Return the function of the lesson's own answer, or of the class's pack beside its notebook; None for neither."""
    if (source := source_with(exercise_id)) is not None:
        lesson = load(source)
        wanted = _wanted(lesson.manifest, exercise_id, name)
        cells = [
            {"cell_type": each.kind, "id": each.id, "source": without_markers(each.source),
             "metadata": {"tags": each.tags, "labkit": {"exercise": each.exercise}}}
            for each in lesson.cells
        ]  # fmt: skip
        return _run(source, cells, lesson.manifest, exercise_id)[0].get(wanted)
    if found is None:
        return None
    path, cells, manifest = found
    answers = {slug: text for pack in packs_in(path.parent) for slug, text in pack.answers.items()}
    if exercise_id not in answers:
        return None
    filled = [{**each, "source": answers.get(_exercise(each), each["source"])} for each in cells]
    return _run(path, filled, manifest, exercise_id)[0].get(_wanted(manifest, exercise_id, name))


def _exercise(cell: Any) -> str:
    return str(cell["metadata"].get("labkit", {}).get("exercise", ""))


def _notebook_with(exercise_id: str, folder: Path) -> _Found | None:
    """Return the lesson's notebook that has this exercise, its cells and its manifest; None where none has."""
    unread: LessonError | None = None
    for path in sorted(folder.glob("[0-9][0-9]_*.ipynb")):
        try:
            notebook = json.loads(path.read_text(encoding="utf-8"))
            manifest = from_metadata(notebook["metadata"], path.name)
            if any(each.id == exercise_id for each in manifest.exercises):
                return path, notebook["cells"], manifest
        except LessonError:
            continue  # a notebook that is no lesson
        except (OSError, ValueError, KeyError, TypeError) as error:
            unread = LessonError(f"{path.name} cannot be read as a notebook ({error}).")
    if unread is not None:
        raise unread
    return None


def _say(text: str, value: Any) -> Any:
    sys.stdout.write(f"{text}\n")
    return value


def _wanted(manifest: Manifest, exercise_id: str, name: str | None) -> str:
    provides = manifest.exercise(exercise_id).provides
    if name is None and len(provides) == 1:
        return provides[0]
    if name in provides and name is not None:
        return name
    raise LessonError(f"Exercise {exercise_id} provides {', '.join(provides)}; write name={provides[0]!r}.")


def _run(path: Path, cells: list[Any], manifest: Manifest, exercise_id: str) -> tuple[dict[str, Any], str]:
    """Return what given cells and answers define, and what is wrong with the wanted answer ("" if nothing).

    Answers are found as a grader finds them, with what they need of other cells; nothing beside them runs. The module
    is not importable, so its functions travel to other processes by value.
    """
    module = types.ModuleType(path.stem)
    code = Code(
        [_as_submitted(place, cell) for place, cell in enumerate(cells) if cell["cell_type"] == "code"], _LONGEST
    )
    answers = {each.id: _Answer(code, each) for each in manifest.exercises if each.is_code and each.provides}
    problem = f"has no cell of exercise {exercise_id}"
    settled: dict[str, tuple[int, int]] = {}
    given = {name for cell in code.cells if "given" in cell.tags for name in names_made(cell.source)}
    steps: list[tuple[int, SubmittedCell | str]] = [
        (cell.position, cell) for cell in code.cells if "given" in cell.tags
    ]
    steps += [(answer.position, slug) for slug, answer in answers.items()]
    for _, slug in sorted(steps, key=lambda step: step[0]):
        if isinstance(slug, SubmittedCell):
            _define(path, slug, code.of(slug), module)
            continue
        answer = answers[slug]
        earlier = {name for each in answers.values() if each.position < answer.position for name in each.asked.provides}
        error = None
        for each in answer.statements(code, settled, given | earlier):
            error = _define(path, code.at(each.position), [each], module) or error
            settled |= dict.fromkeys(each.binds, each.order)
        if slug != exercise_id or not answer.is_there:
            continue
        problem = f"stops in the cell of exercise {slug} with {type(error).__name__}: {error}" if error else ""
        if answer.is_undone:
            problem = f"leaves exercise {slug} as it was handed out"
    return module.__dict__, problem


def _as_submitted(place: int, cell: Any) -> SubmittedCell:
    tags = tuple(map(str, cell["metadata"].get("tags", [])))
    return SubmittedCell(place, str(cell.get("id")), "code", _exercise(cell), tags, "".join(cell["source"]))


class _Answer:
    """What answers an exercise in a learner's notebook.

    Args:
        code: Of the notebook.
        exercise: Which one.
    """

    def __init__(self, code: Code, exercise: Exercise) -> None:
        task = "design" if exercise.kind == "design" else "exercise"
        nowhere = SubmittedCell(0, "", "code", exercise.id, (task,), "")
        marked = [each for each in code.cells if each.exercise == exercise.id and task in each.tags]
        cell = next(iter(marked), nowhere)
        self.asked = Asked(cell, exercise.id, exercise.number, task, exercise.provides)
        others = {each.position for each in code.cells if each.tags and not self.asked.marks(each)}
        self._taken = take(self.asked, code, others)
        self._own = [each for one in self._taken.own for each in code.of(one)] + list(self._taken.parts)
        self.position = marked[0].position if marked else self._taken.check

    @property
    def is_there(self) -> bool:
        """Whether any cell answers it."""
        return bool(self._taken.own or self._taken.parts)

    @property
    def is_undone(self) -> bool:
        """Whether what is there is what was handed out."""
        makers = [each for each in self._own if each.binds & set(self.asked.provides)]
        return bool(makers) and any(each.is_gap for each in makers)

    def statements(self, code: Code, settled: Mapping[str, tuple[int, int]], there: Collection[str]) -> list[Statement]:
        """Return what must run for it, in the notebook's order: what it needs of other cells, then itself."""
        own, names = reached(self.asked.provides, self._own)
        along = needed(names, code, self._taken.check, settled, {*there, *self.asked.provides})
        return [*(each for each in along if each not in self._own), *own]


def _define(
    path: Path, cell: SubmittedCell, statements: Sequence[Statement], module: types.ModuleType
) -> Exception | None:
    """Run statements of a cell, each by itself, and return what the first that failed raised."""
    file, source = f"<{path.stem}, cell {cell.id}>", as_python(cell.source)
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    first: Exception | None = None
    for each in statements:
        try:
            exec(compile(ast.Module([each.tree], []), file, "exec", dont_inherit=True), module.__dict__)
        except Exception as error:
            first = first or error  # a later lesson goes on without it
    return first
