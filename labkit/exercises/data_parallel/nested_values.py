"""Tuples, lists, dicts and tensors of any device as values that cross the line, and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from torch import Tensor

from labkit.checks.case import Value


def build(tree: Value) -> Any:
    """Return what a tree describes: {"tuple": [...]}, {"list": [...]}, {"dict": {...}}, or the value itself.

    Tensors are copies, so that nothing that is done to them reaches the tree.
    """
    if isinstance(tree, Tensor):
        return tree.clone()
    if not isinstance(tree, dict):
        return tree
    ((kind, items),) = tree.items()
    if kind == "dict":
        return {key: build(item) for key, item in cast(dict[str, Value], items).items()}
    made = [build(item) for item in cast(list[Value], items)]
    return tuple(made) if kind == "tuple" else made


def describe(value: Any) -> Value:
    """Return the tree of a value; a tensor of another device than the CPU becomes {"meta": its shape}."""
    if isinstance(value, Tensor):
        return value.detach().clone() if value.device.type == "cpu" else {value.device.type: list(value.shape)}
    if isinstance(value, dict):
        return {"dict": {str(key): describe(item) for key, item in value.items()}}
    if isinstance(value, tuple | list):
        return {"tuple" if isinstance(value, tuple) else "list": [describe(item) for item in value]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return f"a {type(value).__name__}"


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield the tensors of a value (not of a tree), in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from tensors_in(item)
