"""A function has at most 80 lines and 12 parameters; those with more are named, and the list only shrinks."""

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
    "commands/learning.py launch": 17,
    "commands/planning.py plan": 24,
    "commands/teaching.py grade": 15,
    "exercises/planner/costs.py layer_seconds": 13,
    "exercises/sharded_training/training.py training_case": 13,
    "grading/grade.py grade": 16,
    "simulator/cluster.py describe": 14,
    "simulator/port_calls.py _collective": 13,
    "virtual_world.py virtual": 20,
    "widgets/bucket_explorer.py bucket_explorer": 20,
}
"""A command's parameters are its options; its body hands them on."""


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
