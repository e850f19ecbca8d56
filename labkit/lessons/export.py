"""``labkit export``: a learner's notebook as one script that torchrun, Slurm or Kubernetes starts."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.errors import LessonError
from labkit.lessons import code
from labkit.lessons.course import find_course, select
from labkit.lessons.drift import read_notebook
from labkit.lessons.reach import definitions, reachable
from labkit.lessons.script import SIGNATURE, script

_TAKEN = {"given", "exercise", "export"}


@dataclass(frozen=True)
class _Piece:
    """A cell that goes into the script."""

    cell: str
    source: str
    statements: tuple[ast.stmt, ...]
    exported: bool


def export(asked: str, *, function: str | None = None, out: Path | None = None, course: Path | None = None) -> Path:
    """Write the script that runs a function of a notebook on every rank, and return its path.

    The script holds the cells tagged ``given``, ``exercise`` and ``export``, as they are in the notebook.

    Args:
        asked: A notebook's path, or a lesson's number or name; then its notebook in notebooks/.
        function: What every rank runs; it takes no arguments. None is ``main``.
        out: The file to write; None is beside the notebook, under the notebook's name.
        course: A folder in the course, where lessons are looked up; None is the working directory.

    Raises:
        LessonError: If the notebook is not one of labkit's, does not parse, lacks the function, or the function
            stands on an exercise that is still open; or if the file to write is not an earlier export.
    """
    notebook = _notebook(asked, course)
    pieces = list(_pieces(read_notebook(notebook), notebook.name))
    if not pieces:
        raise LessonError(
            f"{notebook.name} has no cell tagged given, exercise or export; use a notebook that `labkit build` wrote."
        )
    name = function or "main"
    used = _refuse_unrunnable(name, pieces, notebook.name)
    path = out or notebook.with_suffix(".py")
    if path.exists() and SIGNATURE not in path.read_text(encoding="utf-8"):
        raise LessonError(f"{path} exists, and `labkit export` did not write it; choose another file with --out.")
    text = script(
        title=notebook.stem,
        function=name,
        file=path.name,
        cells=[(piece.cell, piece.source) for piece in pieces],
        joins_itself="init_process_group" in used,
    )
    path.write_text(text, encoding="utf-8")
    return path


def _notebook(asked: str, course: Path | None) -> Path:
    if asked.endswith(".ipynb"):
        path = Path(asked)
        if not path.exists():
            raise LessonError(f"There is no notebook {asked}; give its path, or a lesson such as 02.")
        return path
    root = find_course(course)
    return select(sorted((root / "notebooks").glob("*.ipynb")), asked)


def _pieces(notebook: Any, file: str) -> Iterator[_Piece]:
    for cell in notebook["cells"]:
        tags = set(cell["metadata"].get("tags", []))
        if cell["cell_type"] != "code" or not tags & _TAKEN:
            continue
        identity = cell.get("id", "without an id")
        try:
            code.refuse_side_effects(cell["source"])
            statements = tuple(code.body(cell["source"]))
        except code.CodeError as error:
            raise LessonError(f"{file}, cell {identity}, line {error.line}: {error}") from error
        yield _Piece(identity, cell["source"], statements, "export" in tags)


def _refuse_unrunnable(name: str, pieces: list[_Piece], file: str) -> set[str]:
    """Return every name and attribute the function's code mentions, once it can run on a rank."""
    defined = definitions([statement for piece in pieces for statement in piece.statements])
    function = defined.get(name)
    functions = [each for each, statement in defined.items() if isinstance(statement, ast.FunctionDef)]
    if not isinstance(function, ast.FunctionDef):
        startable = [each for each in functions if not _wanted(defined[each])]
        near = difflib.get_close_matches(name, startable or functions, n=1)
        hint = f"did you mean {near[0]}?" if near else f"name one with --function: {', '.join(startable) or 'none yet'}"
        raise LessonError(
            f"{file} defines no function {name}() in its given, exercise and export cells ({hint}). "
            "Write one that takes no arguments in a cell tagged export."
        )
    if wanted := _wanted(function):
        raise LessonError(
            f"{file}: {name}() takes {', '.join(wanted)}, but every rank calls it without arguments; "
            f"write a function without arguments that calls {name}, and name it with --function."
        )
    open_exercises = []
    used: set[str] = set()
    for each in reachable(name, defined):
        for node in ast.walk(defined[each]):
            if message := code.gap_message(node):
                open_exercises.append(f"{each}: {message}")
            used |= {node.id} if isinstance(node, ast.Name) else set()
            used |= {node.attr} if isinstance(node, ast.Attribute) else set()
    if open_exercises:
        raise LessonError(
            f"{file}: {name}() needs exercises that are not written yet; finish these first:\n  "
            + "\n  ".join(dict.fromkeys(open_exercises))
        )
    return used


def _wanted(function: ast.stmt) -> list[str]:
    """Return the arguments a function cannot do without."""
    assert isinstance(function, ast.FunctionDef)
    positional = function.args.posonlyargs + function.args.args
    required = positional[: len(positional) - len(function.args.defaults)]
    keyword = [
        each for each, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True) if not default
    ]
    return [each.arg for each in required + keyword]
