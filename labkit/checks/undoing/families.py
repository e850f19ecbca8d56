"""Which operators and names are taken for each other."""

from __future__ import annotations

import ast
from typing import Any

NEAR: dict[type[ast.AST], tuple[type[Any], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),  # codespell:ignore
    ast.NotIn: (ast.In,),  # codespell:ignore
    ast.Add: (ast.Sub, ast.Mult),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Add, ast.Div, ast.FloorDiv),
    ast.Div: (ast.Mult, ast.FloorDiv),
    ast.FloorDiv: (ast.Div, ast.Mult, ast.Mod),
    ast.Mod: (ast.FloorDiv,),
    ast.Pow: (ast.Mult,),
}
"""What an operator is taken for first; the rest of its family comes late."""
RELATED: tuple[tuple[Any, ...], ...] = (
    (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq),
    (ast.Is, ast.IsNot),
    (ast.In, ast.NotIn),  # codespell:ignore
)
OPERATORS: tuple[tuple[Any, ...], ...] = (
    (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow),
    (ast.BitAnd, ast.BitOr, ast.BitXor),
    (ast.LShift, ast.RShift),
)
CALLED: tuple[tuple[Any, ...], ...] = (
    ("min", "max", "sum", "mean", "prod"),
    ("MIN", "MAX", "SUM", "AVG", "PRODUCT"),
    ("argmin", "argmax"),
    ("all", "any"),
    ("floor", "ceil", "round", "trunc"),
    ("amin", "amax"),
    ("reversed", "list", "sorted"),
    ("grad", "data"),
    ("isend", "irecv"),
    ("send", "recv"),
    ("src", "dst"),
    ("add_", "sub_", "mul_", "div_", "copy_"),
    ("add", "sub", "mul", "div"),
    ("zeros_like", "ones_like", "empty_like"),
    ("zeros", "ones", "empty"),
    ("append", "extend"),
    ("popleft", "pop"),
    ("appendleft", "append"),
    ("reduce_scatter_tensor", "all_gather_into_tensor"),
    ("all_reduce", "broadcast", "reduce"),
    ("sin", "cos"),
    ("log", "log2", "exp"),
    ("keys", "values", "items"),
    ("ones", "zeros", "arange"),
    ("tril", "triu"),
    ("real", "imag"),
    ("float32", "float64", "bfloat16", "float16"),
)


def others(families: tuple[tuple[Any, ...], ...], one: Any) -> list[Any]:
    """Return the others of the families that one is in."""
    return list(dict.fromkeys(each for family in families if one in family for each in family if each != one))


def far(families: tuple[tuple[Any, ...], ...], one: type[ast.AST]) -> list[Any]:
    """Return the operators of the families that one is in and that are not near it."""
    return [each for each in others(families, one) if each not in NEAR.get(one, ())]
