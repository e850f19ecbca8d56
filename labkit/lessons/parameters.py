"""Parameters of a lesson's notebook: what its ``parameters`` cell declares, and refusing what it does not."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Mapping
from typing import Any

from labkit.errors import LessonError
from labkit.lessons import code


def declared(notebook: Any) -> dict[str, Any]:
    """Return the names a notebook's ``parameters`` cell declares, with their literal values.

    A value that is no literal (an expression) stands as its source text.

    Args:
        notebook: An nbformat node, or the same structure as plain dictionaries.

    Raises:
        LessonError: If the parameters cell does not parse.
    """
    found: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code" and "parameters" in cell["metadata"].get("tags", []):
            try:
                statements = code.body(cell["source"])
            except code.CodeError as error:
                raise LessonError(f"The parameters cell, line {error.line}: {error}") from error
            for statement in statements:
                if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
                    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                    found |= {each.id: _value(statement.value) for each in targets if isinstance(each, ast.Name)}
    return found


def refuse_undeclared(notebook: Any, given: Mapping[str, Any]) -> None:
    """Accept only parameters that the notebook declares; papermill would run it with a misspelt one unheard.

    Raises:
        LessonError: If a name is not declared; the message lists those that are.
    """
    names = declared(notebook)
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise LessonError(
                f"The notebook has no parameter {name!r}{hint}; it declares {', '.join(names) or 'none'}."
            )


def _value(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)
