"""Which definitions a function stands on, read from the syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence


def definitions(statements: Sequence[ast.stmt]) -> dict[str, ast.stmt]:
    """Return the statement that defines each top-level name; the last one of a name wins."""
    found: dict[str, ast.stmt] = {}
    for statement in statements:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found[statement.name] = statement
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            found |= {
                each.id: statement for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)
            }
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            found |= {(alias.asname or alias.name).partition(".")[0]: statement for alias in statement.names}
    return found


def reachable(name: str, defined: Mapping[str, ast.stmt]) -> list[str]:
    """Return the names that name's definition uses, directly or through others, itself first."""
    order, waiting = [], [name]
    while waiting:
        current = waiting.pop(0)
        if current in order or current not in defined:
            continue
        order.append(current)
        waiting += sorted({node.id for node in ast.walk(defined[current]) if isinstance(node, ast.Name)} - set(order))
    return order
