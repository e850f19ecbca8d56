"""What a statement puts into the notebook without an assignment.

``globals()["N"] = 2``, ``setattr(sys.modules[__name__], "N", 2)``, ``exec("N = 2")``. What is computed, as in
``exec(text)``, cannot be read.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from labkit.lessons.left_beside import COMPUTED

_NAMESPACES = frozenset({"globals", "locals", "vars"})


def names_put(node: ast.AST) -> Iterator[str]:
    """Yield the names that a part of a statement puts into the notebook; `COMPUTED` for those that cannot be read."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and _is_namespace(node.value):
        yield _text(node.slice)
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_notebook(node.value):
        yield node.attr
    elif isinstance(node, ast.Call):
        yield from _by_call(node)


def _by_call(call: ast.Call) -> Iterator[str]:
    function, arguments = call.func, call.args
    if isinstance(function, ast.Name):
        if function.id == "setattr" and len(arguments) == 3 and _is_notebook(arguments[0]):
            yield _text(arguments[1])
        elif function.id == "exec" and text_run(call) == COMPUTED:
            yield COMPUTED
    elif isinstance(function, ast.Attribute):
        if function.attr in ("setdefault", "__setitem__") and arguments and _is_namespace(function.value):
            yield _text(arguments[0])
        elif (function.attr == "update" and _is_namespace(function.value)) or _is_push(function):
            yield from (each.arg or COMPUTED for each in call.keywords)
            for each in arguments:
                yield from map(_text, each.keys) if isinstance(each, ast.Dict) else [COMPUTED]


def text_run(node: ast.AST) -> str | None:
    """Return the text that a call of ``exec`` runs in the notebook; `COMPUTED` where it is not written there."""
    is_exec = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "exec"
    if not (is_exec and isinstance(node, ast.Call) and node.args):
        return None
    return _text(node.args[0]) if len(node.args) == 1 or _is_namespace(node.args[1]) else None


def _is_namespace(node: ast.expr) -> bool:
    """Return whether an expression is the notebook's table of names: ``globals()``, ``__main__.__dict__``."""
    if isinstance(node, ast.Attribute):
        return node.attr == "user_ns" or (node.attr == "__dict__" and _is_notebook(node.value))
    named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _NAMESPACES
    return named and isinstance(node, ast.Call) and all(map(_is_notebook, node.args))


def _is_notebook(node: ast.expr) -> bool:
    """Return whether an expression is the notebook as a module, or what all modules see."""
    if isinstance(node, ast.Name):
        return node.id in ("__main__", "builtins")
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "modules":
        return _is_its_name(node.slice)
    if isinstance(node, ast.Call):
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        return name in ("import_module", "__import__") and bool(node.args) and _is_its_name(node.args[0])
    return False


def _is_its_name(node: ast.expr) -> bool:
    return (isinstance(node, ast.Name) and node.id == "__name__") or _text(node) == "__main__"


def _is_push(function: ast.Attribute) -> bool:
    asked = function.value
    return (
        function.attr == "push"
        and isinstance(asked, ast.Call)
        and isinstance(asked.func, ast.Name)
        and asked.func.id == "get_ipython"
    )


def _text(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else COMPUTED
