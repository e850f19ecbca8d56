"""A function has at most 80 lines and 12 parameters; more are named, and the list only shrinks; lambdas have 3."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from tests.statements import statements

LABKIT = Path(__file__).parents[2] / "labkit"
MOST_LINES, MOST_PARAMETERS = 80, 12

STILL_LONG = {
    "virtual_world.py virtual": 99,
}
STILL_WIDE = {
    "commands/auditing.py audit": 14,
    "commands/learning.py launch": 18,
    "commands/planning.py plan": 24,
    "commands/teaching.py grade": 15,
    "grading/grade.py grade": 16,
    "simulator/cluster.py describe": 14,
    "simulator/port_calls.py _collective": 13,
    "virtual_world.py virtual": 20,
    "widgets/bucket_explorer.py bucket_explorer": 20,
}
"""What people write by name, explained once where it stands, with a record inside: commands' options, `labkit.virtual`
(a Cluster; `describe` takes the same words), `grade` (a Setting), `bucket_explorer` (a model). And `_collective`: what
each operation says of its call, in one place."""


@cache
def _functions() -> list[tuple[str, int, int]]:
    """Return place and name, lines and parameters of every function of labkit."""
    return [
        (f"{path.relative_to(LABKIT).as_posix()} {node.name}", (node.end_lineno or 0) - node.lineno + 1, _given(node))
        for path in sorted(LABKIT.rglob("*.py"))
        for node in statements(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def _given(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return sum(each.arg not in ("self", "cls") for each in given)


def test_a_function_has_at_most_80_lines_but_for_those_named() -> None:
    long = {name: lines for name, lines, _ in _functions() if lines > MOST_LINES}
    assert long == STILL_LONG, "cut what is new or longer; take out, or lower, what is cut"


def test_a_function_has_at_most_12_parameters_but_for_those_named() -> None:
    wide = {name: given for name, _, given in _functions() if given > MOST_PARAMETERS}
    assert wide == STILL_WIDE, "pass a record where this is new or has more; take out, or lower, what has fewer"


def test_a_lambda_has_at_most_three_lines() -> None:
    long = [
        f"{path.relative_to(LABKIT)}:{node.lineno}"
        for path in sorted(LABKIT.rglob("*.py"))
        if "lambda" in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Lambda) and (node.end_lineno or 0) - node.lineno >= 3
    ]
    assert not long, "give what is longer a name"
