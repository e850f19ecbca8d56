"""What statements leave beside the notebook's names: files, modules among them, and variables of the environment.

Each is known among names by what no name is like: ``<tools>`` for a module or package that a cell writes, ``<file
table.json>`` for another file, `ENVIRONMENT`. Of these every statement counts that writes to one, in the file's order.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

COMPUTED = ""
"""Stands for names and files that only the running notebook knows."""
ENVIRONMENT = "<variables of the environment>"
_FILE = re.compile(r"(?:\./)?((?:[\w-]+/){0,4}[\w-]+\.\w{1,8})")
_MODULE = re.compile(r"([A-Za-z_]\w*)(?:(?:/[A-Za-z_]\w*)*)\.py")
_LONGEST = 200
"""Characters of a text that may name a file."""
_ENVIRONMENTS = frozenset({"environ", "getenv", "putenv"})
_SETTING = frozenset({"putenv", "update", "setdefault"})


def module_name(module: str) -> str:
    """Return how a module that a cell may have written is known among names."""
    return f"<{module}>"


def is_module(name: str) -> bool:
    """Return whether a name stands for a module."""
    return name.startswith("<") and " " not in name


def file_names(path: str) -> list[str]:
    """Return how a file beside the notebook is known among names: as a file, and as a module where it is one.

    Of a path that leads elsewhere none.
    """
    found = _FILE.fullmatch(path) if len(path) <= _LONGEST else None
    if found is None:
        return []
    module = _MODULE.fullmatch(found[1])
    return [f"<file {found[1]}>", *([module_name(module[1])] if module else [])]


def files_written(node: ast.AST) -> Iterator[str]:
    """Yield the files that a part of a statement writes: ``open("tools.py", "w")``, ``Path("a.json").write_text``."""
    if not isinstance(node, ast.Call):
        return
    function, file = node.func, node.args[0] if node.args else None
    name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
    if name == "open" and len(node.args) > 1 and not _text(node.args[1]).startswith("r"):
        yield from _file(file)
    elif name in ("write_text", "write_bytes") and isinstance(function, ast.Attribute):
        path = function.value
        yield from _file(path.args[0] if isinstance(path, ast.Call) and path.args else None)


def _file(node: ast.expr | None) -> Iterator[str]:
    path = COMPUTED if node is None else _text(node)
    if path == COMPUTED:
        yield COMPUTED
    else:
        yield from file_names(path)


def files_named(tree: ast.AST) -> Iterator[str]:
    """Yield the files that code names in its texts; a cell may have written one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from file_names(node.value)[:1]


def sets_environment(node: ast.AST) -> bool:
    """Return whether a part of a statement sets a variable: ``os.environ["N"] = "4"``, ``%env N=4``."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.ctx, ast.Store) and _is_environment(node.value)
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    if node.func.attr == "run_line_magic":
        return bool(node.args) and _text(node.args[0]) in ("env", "set_env")
    return node.func.attr in _SETTING and (node.func.attr == "putenv" or _is_environment(node.func.value))


def reads_environment(tree: ast.AST) -> bool:
    """Return whether code asks for variables of the environment."""
    return any(_is_environment(node) for node in ast.walk(tree))


def _is_environment(node: ast.AST) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name in _ENVIRONMENTS


def _text(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else COMPUTED
