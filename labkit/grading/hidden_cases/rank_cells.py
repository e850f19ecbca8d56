"""A submission's cells, run in a rank of a hidden case, where only what they define counts.

There is no notebook around them: what shows something, asks IPython or runs a check is a stand-in that does nothing. A
statement that fails costs itself and no function below it.
"""

from __future__ import annotations
import __future__

import ast
import asyncio
import inspect
import linecache
import os
import sys
import traceback
import types
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import labkit
from labkit.cells import as_python, module_run
from labkit.checks import wire_format
from labkit.grading.relay.client import CELL_MARK

_MAX_TEXT = 4000
_SHOWN = (
    "answer", "bucket_explorer", "challenge", "check", "compare", "compression_explorer", "figure", "hint",
    "matrix_cuts", "predict", "reveal", "ring_player", "schedule_explorer", "sharding_player", "staleness_view",
)  # fmt: skip
"""What of labkit shows or asks something in a notebook."""


def run_cells(cells: Sequence[Mapping[str, str]]) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """Return the namespace after running each cell on its own, and what went wrong first in which.

    Args:
        cells: id, name (as the learner knows it), kind, source.
    """
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    namespace = module.__dict__
    _still(labkit)
    sys.path.insert(0, str(Path.cwd()))  # as in a notebook, modules that cells write are found
    namespace |= {"display": _nothing, "get_ipython": lambda: _NoIPython(namespace)}
    errors: list[dict[str, str]] = []
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    for cell in cells:
        source = as_python(cell["source"])
        filename = _filename(cell)
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        error, flags = _run(source, filename, namespace, flags)
        if error is not None:
            errors.append({"cell": cell["id"], "name": cell["name"], **describe(error)})
    return namespace, errors


def _filename(cell: Mapping[str, str]) -> str:
    if cell["kind"] == "given":
        return f"<{cell['name']}>"
    return f"{CELL_MARK}{cell['name']}{'' if cell['kind'] == 'exercise' else ', ' + cell['kind']}>"


def _run(source: str, filename: str, namespace: dict[str, Any], flags: int) -> tuple[BaseException | None, int]:
    """Run a cell statement by statement, and return what was raised first; only an exit ends it.

    What it imports from the future holds for later cells, too, as in a kernel: it is in the flags that come back.
    """
    first: BaseException | None = None
    try:
        statements = ast.parse(source, filename).body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        return error, flags
    for statement in statements:
        if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
            features = (getattr(__future__, alias.name, None) for alias in statement.names)
            for each in features:
                flags |= 0 if each is None else each.compiler_flag
            continue
        for here in sys.path[:1]:
            sys.path_importer_cache.pop(here, None)  # the statement before may have written a module
        try:
            _run_one(statement, filename, flags, namespace)
        except Exception as error:
            first = first or error
        except BaseException as error:
            return first or error, flags
    return first, flags


def _run_one(statement: ast.stmt, filename: str, flags: int, namespace: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        code = compile(ast.Module([statement], []), filename, "exec", flags, dont_inherit=True)
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(code, namespace))  # as IPython does with an await outside functions
    else:
        exec(code, namespace)


def describe(error: BaseException) -> dict[str, str]:
    """Return an exception as data: kind, message, and the learner's own lines."""
    name = type(error).__name__
    try:
        text = str(error)[:_MAX_TEXT]
    except BaseException:
        text = "(its text cannot be made)"
    kind, message = "exception", f"{name}: {text}" if text else name
    if isinstance(error, NotImplementedError):
        kind, message = "not_implemented", text or "NotImplementedError"
    elif isinstance(error, wire_format.WireFormatError):
        kind, message = "bad_result", text
    elif isinstance(error, SystemExit):
        message = f"the code called sys.exit({text})"
    lines: list[str] = []
    if isinstance(error, SyntaxError):
        shown = (error.text or "").rstrip("\n")
        lines.append(f"{str(error.filename).strip('<>')}, line {error.lineno}: {shown.strip()}")
        message = f"{name}: {error.msg}"
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename.startswith("<"):
            lines.append(f"{frame.filename.strip('<>')}, line {frame.lineno}: {frame.line or ''}")
    return {"kind": kind, "message": message, "detail": "\n".join(lines[-12:])[:_MAX_TEXT], "error": name[:100]}


class _NoIPython:
    """Stands in for IPython: it runs the statement of ``%time``, keeps variables and does nothing else.

    Args:
        namespace: Where the statement runs.
    """

    def __init__(self, namespace: dict[str, Any]) -> None:
        self._namespace = self.user_ns = namespace

    def run_line_magic(self, name: str, line: str) -> Any:
        """Return what the statement of ``%time`` is worth; run the file of ``%run``, set what ``%env`` says.

        Any other magic does nothing.
        """
        variable, given, value = line.partition("=" if "=" in line else " ")
        if name in ("env", "set_env") and given:
            os.environ[variable.strip()] = value.strip()
        if name == "run" and (module := module_run(line)):
            text = Path(f"{module}.py").read_text(encoding="utf-8")
            exec(compile(text, f"{module}.py", "exec", dont_inherit=True), self._namespace)
        if name != "time":
            return None
        asking = sys._getframe(1)  # in a function its names are there, too
        names = self._namespace if asking.f_globals is asking.f_locals else asking.f_locals
        try:
            code = compile(line, "<%time>", "eval", dont_inherit=True)
        except SyntaxError:
            exec(compile(line, "<%time>", "exec", dont_inherit=True), self._namespace, names)
            return None
        return eval(code, self._namespace, names)

    def run_cell_magic(self, name: str, line: str, cell: str) -> None:
        """Write a file for ``%%writefile``, add to it for ``-a``, and do nothing for any other magic."""
        if name == "writefile":
            with open(line.split()[-1], "a" if line.startswith("-a") else "w", encoding="utf-8") as file:
                file.write(cell)

    def push(self, variables: Mapping[str, Any]) -> None:
        """Give the notebook variables."""
        self._namespace.update(variables)

    def getoutput(self, command: str) -> list[str]:
        """Return no lines: there is no shell."""
        return []

    def __getattr__(self, name: str) -> Any:
        return _nothing


def _nothing(*args: object, **kwargs: object) -> None:
    return None


def _still(package: Any) -> None:
    """Make labkit's notebook functions harmless in cells that call them: checks are the notebook's, runs too."""

    def no_run(*args: object, **kwargs: object) -> NoReturn:
        raise RuntimeError("labkit.run cannot be called here: these cases already run on several ranks")

    for name in _SHOWN:
        setattr(package, name, _nothing)
    package.run = no_run
