"""Code as it is compared: without lines that do nothing, and what cannot be compared at all, named."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import lru_cache
from itertools import islice

_RUNS_TEXT = frozenset({"exec", "eval", "compile"})
_BUILTINS = frozenset({"builtins", "__builtins__"})
_RUNS_BYTES = frozenset({"marshal", "runpy", "codeop", "FunctionType", "CodeType"})
_IDLE_CALLS = frozenset({"len", "int", "float", "str", "bool", "abs", "min", "max", "round", "repr", "type"})
_MOST_NODES = 20_000


@lru_cache(maxsize=4096)
def without_idle(source: str) -> str:
    """Return a cell without statements of no effect: constants alone, and values kept under names that nobody reads.

    Code that stands in it as a text, such as a module that it writes to a file, follows it as code. A cell that Python
    cannot read comes back as it is. Whoever compares a class asks for each cell twice.
    """
    source = "\n".join([source, *(text for node in _nodes(source) if (text := _code_in(node)))])
    nodes = _nodes(source)
    read = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    lines = source.splitlines()
    for node in nodes:
        if isinstance(node, ast.stmt) and _is_idle(node, read) and node.end_lineno is not None:
            for number in range(node.lineno - 1, node.end_lineno):
                lines[number] = ""
    return "\n".join(lines) if nodes else source


def runs_text(answers: Mapping[str, str]) -> tuple[str, ...]:
    """Return the exercises whose cell runs a text as code, which no comparison sees through."""
    return tuple(exercise for exercise, source in answers.items() if _runs_text(source))


def _nodes(source: str) -> list[ast.AST]:
    """Return every node of what Python reads here, none where it cannot or there are too many."""
    try:
        nodes = list(islice(ast.walk(ast.parse(source)), _MOST_NODES + 1))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return nodes if len(nodes) <= _MOST_NODES else []


def _code_in(node: ast.AST) -> str:
    """Return a text that defines something in Python, "" for any other part of a cell."""
    text = node.value if isinstance(node, ast.Constant) else None
    if not isinstance(text, str) or "def " not in text:
        return ""
    return text if any(isinstance(each, ast.FunctionDef) for each in _nodes(text)) else ""


def _is_idle(node: ast.stmt, read: set[str]) -> bool:
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        unread = all(isinstance(each, ast.Name) and each.id not in read for each in targets)
        return unread and node.value is not None and all(_is_harmless(each) for each in ast.walk(node.value))
    return False


def _is_harmless(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in _IDLE_CALLS
    return not isinstance(node, ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr)


def _runs_text(source: str) -> bool:
    return any(_is_way_to_run(node) for node in _nodes(source))


def _is_way_to_run(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return node.id in _RUNS_TEXT | _RUNS_BYTES | _BUILTINS
    if isinstance(node, ast.Attribute):
        of_all = isinstance(node.value, ast.Name) and node.value.id in _BUILTINS
        return node.attr in _RUNS_BYTES or (of_all and node.attr in _RUNS_TEXT)
    return isinstance(node, ast.Constant) and node.value in ("exec", "eval")  # getattr(something, "exec")
