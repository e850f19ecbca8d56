"""mine(): the learner's own function out of an earlier lesson's notebook, else torch's or one on loan."""

from __future__ import annotations

import json
import linecache
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from labkit.errors import LessonError
from labkit.lessons.code import is_stub
from labkit.lessons.cuts import without_markers
from labkit.lessons.lending import packs_in, source_with
from labkit.lessons.lesson import CODE_TASKS
from labkit.lessons.manifest import Manifest, from_metadata
from labkit.lessons.source import load

Function = TypeVar("Function", bound=Callable[..., Any])


def mine(
    exercise_id: str, otherwise: Function | None = None, *, name: str | None = None, folder: Path | None = None
) -> Function | Any:
    """Return your own function of an earlier exercise, else `otherwise`, else one on loan; it says which.

    Your notebook of that lesson must lie beside this one. Only its given and exercise cells run, in a module of their
    own.

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
    namespace, problem = _run(path, cells, exercise_id)
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
        return _run(source, cells, exercise_id)[0].get(wanted)
    if found is None:
        return None
    path, cells, manifest = found
    answers = {slug: text for pack in packs_in(path.parent) for slug, text in pack.answers.items()}
    if exercise_id not in answers:
        return None
    filled = [{**each, "source": answers.get(_exercise(each), each["source"])} for each in cells]
    return _run(path, filled, exercise_id)[0].get(_wanted(manifest, exercise_id, name))


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


def _run(path: Path, cells: list[Any], exercise_id: str) -> tuple[dict[str, Any], str]:
    """Return what given and exercise cells define, and what is wrong with the wanted exercise's cell ("" if nothing).

    The module is not importable, so its functions travel to other processes by value.
    """
    module = types.ModuleType(path.stem)
    problem = f"has no cell of exercise {exercise_id}"
    for cell in cells:
        tags = cell["metadata"].get("tags", [])
        if cell["cell_type"] != "code" or not {"given", *CODE_TASKS} & set(tags):
            continue
        source = "".join(cell["source"])
        is_wanted = "given" not in tags and _exercise(cell) == exercise_id
        file = f"<{path.stem}, cell {cell.get('id')}>"
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        try:
            code = compile(source, file, "exec", dont_inherit=True)
            exec(code, module.__dict__)
        except Exception as error:
            if is_wanted:
                problem = f"stops in the cell of exercise {exercise_id} with {type(error).__name__}: {error}"
            continue  # a later lesson goes on without it
        if is_wanted:
            undone = is_stub(source)
            problem = f"leaves exercise {exercise_id} as it was handed out" if undone else ""
    return module.__dict__, problem
