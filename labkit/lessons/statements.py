"""The statements of a submission's cells, read from the syntax tree: the names each makes, changes and uses."""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from labkit.cells import as_python, file_written, module_run
from labkit.lessons.code import is_gap
from labkit.lessons.left_beside import (
    COMPUTED,
    ENVIRONMENT,
    file_names,
    files_named,
    files_written,
    module_name,
    reads_environment,
    sets_environment,
)  # fmt: skip
from labkit.lessons.names_put import names_put, text_run
from labkit.lessons.submitted_cell import SubmittedCell

_THERE = frozenset(dir(builtins)) | {"__name__", "__file__", "__doc__", "display", "get_ipython"}
FUTURE = "<__future__>"
"""What an import from the future makes: a kernel that has run it compiles every later cell so."""
_MOST_WORK = 1 << 22
"""Characters times lines of cells that are no Python by themselves; what is beyond counts as unreadable."""
_MOST_CHARACTERS, _MOST_STATEMENTS = 1 << 20, 10_000
"""Of a submission's cells together; a tree takes hundreds of bytes a character. Cells beyond count as unreadable."""
_NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_INNER = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_IMPORTS = (ast.Import, ast.ImportFrom)
_FILLS = frozenset({"add", "append", "appendleft", "extend", "insert", "register", "setdefault", "update"})
"""Methods that fill a table or a list: called in a cell of its own, they make it what an answer uses."""


@dataclass(frozen=True, eq=False)
class Statement:
    """A statement at the top of a cell.

    Attributes:
        position: The cell's place in the file.
        place: Its own place in the cell.
        text: Its lines.
        tree: Its syntax.
    """

    position: int
    place: int
    text: str
    tree: ast.stmt

    @cached_property
    def binds(self) -> frozenset[str]:
        """The names it makes."""
        return frozenset(bound_by(self.tree))

    @cached_property
    def changes(self) -> frozenset[str]:
        """The names whose value it changes: ``table[1] = 2``, ``table.append(3)``."""
        return frozenset(name for name, _ in _changed(self.tree))

    @cached_property
    def fills(self) -> frozenset[str]:
        """The names whose value it changes wherever it stands: it sets a part of it, or puts something in."""
        return frozenset(name for name, method in _changed(self.tree) if method in {"", *_FILLS})

    @cached_property
    def fills_when_called(self) -> frozenset[str]:
        """The names whose value a function of it changes: ``def register(f): TABLE[f.__name__] = f``."""
        inside = (node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef))
        found = frozenset(name for each in inside for part in each.body for name, _ in _changed(part))
        return found & self.uses if found else found

    @cached_property
    def sets_when_called(self) -> frozenset[str]:
        """The names that a function of it makes in the notebook: ``def begin(): global N; N = 2``."""
        inside = [node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef | ast.Lambda)]
        parts = [part for each in inside for part in ast.walk(each)]
        made = {name for each in parts if isinstance(each, ast.Global) for name in each.names}
        return frozenset(made | {name for each in parts for name in names_put(each)} - {COMPUTED})

    @cached_property
    def writes_file(self) -> bool:
        """Whether it writes a file beside the notebook."""
        return any(True for node in _outer(self.tree) for _ in files_written(node))

    @cached_property
    def is_computed(self) -> bool:
        """Whether it makes names or files that only the running notebook knows: ``exec(text)``."""
        return any(COMPUTED in (*names_put(node), *files_written(node)) for node in ast.walk(self.tree))

    @cached_property
    def calls(self) -> frozenset[str]:
        """The functions that it is decorated with or calls by name: ``@register``, ``register(f)``."""
        called = list(getattr(self.tree, "decorator_list", []))
        if isinstance(self.tree, ast.Expr) and isinstance(self.tree.value, ast.Call):
            called.append(self.tree.value)
        functions = (each.func if isinstance(each, ast.Call) else each for each in called)
        return frozenset(each.id for each in functions if isinstance(each, ast.Name))

    @cached_property
    def uses(self) -> frozenset[str]:
        """The names it takes from the notebook, and what it needs beside them, as in `left_beside`."""
        run = [text for node in _outer(self.tree) if (text := text_run(node))]
        used = {name for text in (self.text, *run) for name in globals_of(text)}
        used |= {*_imported(self.tree), *map(module_name, _run_by(self.tree))}
        return frozenset({*used, *files_named(self.tree), *([ENVIRONMENT] if reads_environment(self.tree) else [])})

    @cached_property
    def takes_at_once(self) -> frozenset[str]:
        """The names that it takes where it stands, and not in a function's inside that is called later."""
        if not isinstance(self.tree, (ast.Assign, ast.AnnAssign, *_NESTED)):
            return frozenset()
        try:
            top = symtable.symtable(self.text, "cell", "exec").get_symbols()
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return frozenset()
        return frozenset(each.get_name() for each in top if each.is_referenced())

    @property
    def remakes(self) -> frozenset[str]:
        """The names that it makes of what they were: ``double = cache(double)``, ``class Part(Part): ...``."""
        return self.binds & self.takes_at_once

    @cached_property
    def is_gap(self) -> bool:
        """Whether it still raises what the notebook raises in an answer's place."""
        return any(map(is_gap, ast.walk(self.tree)))

    @property
    def is_import(self) -> bool:
        """Whether it imports."""
        return isinstance(self.tree, _IMPORTS)

    @property
    def order(self) -> tuple[int, int]:
        """Its place in the file."""
        return (self.position, self.place)


class Code:
    """A submission's code cells, each read once; `of` gives a cell's statements.

    Args:
        cells: Its code cells.
        longest: A longer cell is not read.
    """

    def __init__(self, cells: Iterable[SubmittedCell], longest: int) -> None:
        self.cells = tuple(cells)
        self._longest, self._work = longest, 0
        self._characters, self._statements_left = _MOST_CHARACTERS, _MOST_STATEMENTS
        self._read = {cell.position: self._statements(cell) for cell in self.cells}

    def of(self, cell: SubmittedCell) -> tuple[Statement, ...]:
        """Return a cell's statements; () where it is no Python."""
        return self._read[cell.position]

    def takes_before_it_makes(self, name: str, position: int) -> bool:
        """Return whether a cell takes a name from above before it makes it itself: ``old = double``."""
        for each in self.of(self.at(position)):
            if name in each.takes_at_once:
                return True
            if name in each.binds:
                return False
        return False

    def at(self, position: int) -> SubmittedCell:
        """Return the cell at a place of the file."""
        return next(cell for cell in self.cells if cell.position == position)

    def all(self) -> Iterator[Statement]:
        """Yield the statements of all cells, in their order."""
        for cell in self.cells:
            yield from self._read[cell.position]

    def making(self, name: str) -> Sequence[Statement]:
        """Return the statements that make a name; where none does, those that call a function which sets it."""
        return self._makers.get(name) or self._calling(self._setters.get(name, ()))

    def changing(self, name: str) -> Sequence[Statement]:
        """Return the statements that change a name's value where they stand."""
        return self._changers.get(name, ())

    def filling(self, name: str) -> Sequence[Statement]:
        """Return the statements that call a function, or are decorated with one, which changes a name's value."""
        return self._calling(self._fillers.get(name, ()))

    def _calling(self, statements: Iterable[Statement]) -> Sequence[Statement]:
        functions = {made for each in statements for made in each.binds}
        return [each for function in sorted(functions) for each in self._callers.get(function, ())]

    @cached_property
    def _makers(self) -> dict[str, list[Statement]]:
        return self._by_name(lambda each: each.binds)

    @cached_property
    def _changers(self) -> dict[str, list[Statement]]:
        return self._by_name(lambda each: each.changes)

    @cached_property
    def _callers(self) -> dict[str, list[Statement]]:
        return self._by_name(lambda each: each.calls)

    @cached_property
    def _setters(self) -> dict[str, list[Statement]]:
        return self._by_name(lambda each: each.sets_when_called)

    @cached_property
    def _fillers(self) -> dict[str, list[Statement]]:
        return self._by_name(lambda each: each.fills_when_called)

    def _by_name(self, names: Callable[[Statement], Iterable[str]]) -> dict[str, list[Statement]]:
        found: dict[str, list[Statement]] = {}
        for each in self.all():
            for name in names(each):
                found.setdefault(name, []).append(each)
        return found

    def _statements(self, cell: SubmittedCell) -> tuple[Statement, ...]:
        self._characters -= len(cell.source)
        if len(cell.source) > self._longest or self._characters < 0:
            return ()
        source = cell.source
        if (written := file_written(source)) is not None:
            return (_WrittenFile.made(cell.position, *written),)
        tree = parsed(source)
        if tree is None:
            self._work += len(source) * (source.count("\n") + 1)
            source = as_python(source) if self._work <= _MOST_WORK else source
            tree = parsed(source)
        lines = source.splitlines(keepends=True)
        body = tree.body if tree else []
        self._statements_left -= len(body)
        if self._statements_left < 0:
            return ()
        return tuple(
            Statement(cell.position, place, _lines_of(statement, lines), statement)
            for place, statement in enumerate(body)
        )


class _WrittenFile(Statement):
    """A cell of ``%%writefile name.py``: what imports that module, or names that file, needs it."""

    @classmethod
    def made(cls, position: int, line: str, body: str) -> _WrittenFile:
        file = line.split()[-1]
        folder = file.rpartition("/")[0]
        text = f"get_ipython().run_cell_magic('writefile', {line!r}, {body!r})\n"
        text = f"__import__('os').makedirs({folder!r}, exist_ok=True); {text}" if folder.strip("./") else text
        made = cls(position, 0, text, ast.parse(text).body[-1])
        tree = parsed(body) if file.endswith(".py") else None
        inside = set(_imported(tree)) if tree else set()
        made.__dict__ |= {"binds": frozenset(file_names(file)), "uses": frozenset(inside)}
        return made


def _imported(tree: ast.AST) -> Iterator[str]:
    """Yield the modules that code imports, wherever it does; under ``try``, which may do without, as files."""
    waiting = [(tree, False)]
    while waiting:
        node, tried = waiting.pop()
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name.partition(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module.partition(".")[0]]
        yield from (file_names(f"{name}.py")[0] if tried else module_name(name) for name in names)
        tried = tried or isinstance(node, ast.Try | ast.TryStar)
        waiting += [(each, tried) for each in ast.iter_child_nodes(node)]


def parsed(source: str) -> ast.Module | None:
    """Return the syntax of a text, None where it is no Python."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def _lines_of(statement: ast.stmt, lines: Sequence[str]) -> str:
    decorators = getattr(statement, "decorator_list", [])
    first = min([statement.lineno, *(each.lineno for each in decorators)])
    return "".join(lines[first - 1 : statement.end_lineno]).rstrip("\n") + "\n"


def globals_of(source: str) -> set[str]:
    """Return the names that code takes from outside itself, builtins left out."""
    try:
        waiting = [symtable.symtable(source, "cell", "exec")]
        found: set[str] = set()
        while waiting:
            table = waiting.pop()
            top = table.get_type() == "module"
            found |= {
                each.get_name()
                for each in table.get_symbols()
                if (each.is_referenced() and (top or each.is_global())) or each.is_declared_global()
            }
            waiting += table.get_children()
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return set()
    return found - _THERE


def imports_all(statement: ast.stmt) -> bool:
    """Return whether a statement makes names that stand elsewhere: ``from tools import *``, ``%run tools.py``."""
    if isinstance(statement, ast.ImportFrom):
        return any(alias.name == "*" for alias in statement.names)
    return any(True for _ in _run_by(statement))


def _run_by(statement: ast.stmt) -> Iterator[str]:
    """Yield the module that ``%run tools.py`` runs, once IPython has read it."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "run_line_magic":
        magic, *words = [each.value if isinstance(each, ast.Constant) else None for each in call.args] or [None]
        if magic == "run" and words and (module := module_run(str(words[0]))):
            yield module


def _outer(statement: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a statement that run where it stands: no function's inside."""
    waiting = [statement]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, _NESTED + _INNER):
            waiting += ast.iter_child_nodes(node)


def bound_by(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement makes."""
    if isinstance(statement, ast.AugAssign):
        return  # it changes what there is
    for node in _outer(statement):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.ImportFrom) and node.module == "__future__":
            yield FUTURE
        elif isinstance(node, _IMPORTS):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names if alias.name != "*")
        elif text := text_run(node):
            yield from (name for each in getattr(parsed(text), "body", ()) for name in bound_by(each))
        else:
            yield from (name for name in names_put(node) if name != COMPUTED)
            yield from (each for each in files_written(node) if each != COMPUTED)
            yield from [ENVIRONMENT] if sets_environment(node) else []


def _changed(statement: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield each name whose value a statement changes, and the method that does; "" where a part is set."""
    for node in _outer(statement):
        yield from ((name, "") for name in names_put(node) if name != COMPUTED)
        target: ast.AST | None = None
        method = ""
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            target = node
        elif isinstance(node, ast.AugAssign):
            target = node.target
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            target, method = _called_on(node.value)
        while isinstance(target, ast.Attribute | ast.Subscript | ast.Call):
            target = target.func if isinstance(target, ast.Call) else target.value
        if isinstance(target, ast.Name):
            yield target.id, method


def _called_on(call: ast.Call) -> tuple[ast.AST | None, str]:
    """Return what a call changes, and by which method."""
    if isinstance(call.func, ast.Attribute):
        return call.func.value, call.func.attr
    if isinstance(call.func, ast.Name) and call.func.id == "setattr" and call.args:
        return call.args[0], ""
    return None, ""
