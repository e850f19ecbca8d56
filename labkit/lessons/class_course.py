"""A course as a class sees it: what its lessons show of recorded runs is made from the class's own recordings.

Pages, decks and speaker notes are made from executed solutions, which look at the recordings that come with labkit. A
class has others. So the few cells that show one are run again, with what they need and nothing else.
"""

from __future__ import annotations

import ast
import shutil
import symtable
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat

from labkit.checks.question import KEY, RECORDING
from labkit.lessons.code import parse
from labkit.lessons.course import source_files
from labkit.lessons.executed import execute, solution_cells
from labkit.lessons.lesson import KEYED, Cell, Lesson
from labkit.lessons.notebook import as_text
from labkit.lessons.source import load
from labkit.progress import Told, untold

HIDDEN = Path("solutions", "hidden")
_DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def own_keys(course: Path) -> dict[str, Path]:
    """Return the file of each key that a course keeps for its class, by the question's slug; learners get none."""
    return {path.parent.name: path for path in sorted((course / HIDDEN).glob(f"*/*/{KEY}"))}


def own_recordings(course: Path) -> dict[str, Path]:
    """Return the file of each recording that a course's class looks at in place of labkit's, by the question's slug."""
    found = {slug: key.with_name(RECORDING) for slug, key in own_keys(course).items()}
    return {slug: path for slug, path in found.items() if path.is_file()}


@contextmanager
def class_course(course: Path, sources: Collection[Path], told: Told = untold) -> Iterator[Path]:
    """Give a course whose executed solutions show the class's recordings: the course itself where it has none.

    Args:
        course: The root.
        sources: Lessons that somebody will look at; the others stay as they are.
        told: Told before cells are run.
    """
    slugs = own_recordings(course)
    lessons = [lesson for lesson in map(load, sources) if showing(lesson, slugs)]
    if not lessons:
        yield course
        return
    with tempfile.TemporaryDirectory(prefix="labkit-class-") as folder:
        seen = Path(folder) / "solutions"
        seen.mkdir()
        for path in source_files(course):
            for each in (path, path.with_suffix(".ipynb")):
                if each.is_file():
                    shutil.copyfile(each, seen / each.name)
        told("the class's recordings", 0, 1)
        shown = _outputs(lessons, slugs, course)
        for lesson in lessons:
            path = seen / f"{lesson.name}.ipynb"
            notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
            for cell in notebook.cells:
                cell.update(shown.get(_id_of(lesson, cell.id), {}))
            path.write_text(as_text(notebook), encoding="utf-8")
        yield Path(folder)


def showing(lesson: Lesson, slugs: Collection[str]) -> tuple[Cell, ...]:
    """Return the cells that show these recordings: those that ask for one, and those that use what was read of it.

    Args:
        lesson: With its answers.
        slugs: Of the questions that the recordings belong to.
    """
    found, from_recordings = list[Cell](), set[str]()
    for cell in _code_cells(lesson):
        before = len(found)
        for statement in _statements(cell):
            if _asks(statement, slugs) or _reads(statement) & from_recordings:
                from_recordings |= _binds(statement)
                if cell not in found[before:]:
                    found.append(cell)
            else:
                from_recordings -= _binds(statement)
    return tuple(found)


def _outputs(lessons: Sequence[Lesson], slugs: Collection[str], course: Path) -> dict[str, dict[str, Any]]:
    """Return what the cells that show a class's recording put out, by lesson and cell: one kernel runs all of them."""
    shown, needed = set[str](), list[Cell]()
    for lesson in lessons:
        own = showing(lesson, slugs)
        shown |= {_id_of(lesson, cell.id) for cell in own}
        needed += [replace(cell, id=_id_of(lesson, cell.id)) for cell in _with_what_they_need(lesson, own)]
    ran = execute(replace(lessons[0], cells=tuple(needed)), course / "solutions", own=course / HIDDEN)
    return {cell.id: {"outputs": cell.outputs} for cell in ran.cells if cell.id in shown}


def _id_of(lesson: Lesson, cell_id: str) -> str:
    return f"{lesson.name[:2]}-{cell_id}"[:64]


def _with_what_they_need(lesson: Lesson, shown: Sequence[Cell]) -> tuple[Cell, ...]:
    """Return these cells, and what above them makes the names they read: definitions alone, other cells whole."""
    kept, wanted = list[Cell](), set[str]()
    for cell in reversed(_code_cells(lesson)):
        statements = _statements(cell)
        if cell not in shown:
            statements = _making(statements, wanted)
            if not all(isinstance(each, _DEFINITIONS) for each in statements):
                statements = _statements(cell)
            cell = replace(cell, source="\n".join(map(ast.unparse, statements)))
        if statements:
            kept.append(cell)
            wanted |= {name for statement in statements for name in _reads(statement)}
    return tuple(reversed(kept))


def _making(statements: Sequence[ast.stmt], wanted: Collection[str]) -> list[ast.stmt]:
    """Return those statements that make a name that is wanted, or one that those read."""
    found, names = list[ast.stmt](), set(wanted)
    for statement in reversed(statements):
        if _binds(statement) & names:
            found.append(statement)
            names |= _reads(statement)
    return found[::-1]


def _code_cells(lesson: Lesson) -> list[Cell]:
    """Return the cells that may show something: answers and checks show what is right."""
    return [cell for cell in solution_cells(lesson) if cell.kind == "code" and cell.role not in (*KEYED, "check")]


def _statements(cell: Cell) -> list[ast.stmt]:
    tree = parse(cell.source, strict=False)
    return tree.body if tree else []


def _asks(statement: ast.stmt, slugs: Collection[str]) -> bool:
    """Return whether a statement calls `labkit.recorded` for one of these; for one that it computes, too."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and node.args:
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            which = node.args[0]
            if name == "recorded" and (not isinstance(which, ast.Constant) or which.value in slugs):
                return bool(slugs)
    return False


def _reads(statement: ast.stmt) -> set[str]:
    """Return the names of the notebook that a statement reads, inside functions and comprehensions, too."""
    found, tables = set[str](), [_names(statement)]
    for table in tables:
        top = table.get_type() == "module"
        found |= {each.get_name() for each in table.get_symbols() if each.is_referenced() and (top or each.is_global())}
        tables += table.get_children()
    return found


def _binds(statement: ast.stmt) -> set[str]:
    """Return the names that a statement at the top of a cell makes."""
    return {each.get_name() for each in _names(statement).get_symbols() if each.is_assigned() or each.is_imported()}


def _names(statement: ast.stmt) -> symtable.SymbolTable:
    return symtable.symtable(ast.unparse(statement), "cell", "exec")
