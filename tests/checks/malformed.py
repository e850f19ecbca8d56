"""Results that are not what a driver brings: each part of right ones emptied, cut short, nested, retyped, taken out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor

Results: TypeAlias = tuple[dict[str, Any], ...]
_ITEMS = 3
"""How many items of a long list are looked into: the first two and the last."""


def malformed(results: Results) -> Iterator[tuple[str, Results]]:
    """Yield results that differ from these in one place, each with what was done and where.

    Args:
        results: What a driver brought, rank by rank.
    """
    yield "no rank", ()
    if len(results) > 1:
        yield "a rank is missing", results[:-1]
    yield "a rank twice", (*results, results[-1])
    for rank in sorted({0, len(results) - 1}):

        def put(part: Any, rank: int = rank) -> Results:
            return (*results[:rank], part, *results[rank + 1 :])

        for what, part in _of_dict(results[rank], f"rank {rank}"):
            yield what, put(part)


def _of(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    """Yield what may stand in place of a value, and of its parts."""
    if value is not None:
        yield f"{where} None", None
    yield f"{where} nested deeper", [value]
    if isinstance(value, Tensor):
        yield from _of_tensor(value, where)
    elif isinstance(value, dict):
        yield f"{where} as text", str(value)
        yield from _of_dict(value, where)
    elif isinstance(value, list):
        yield f"{where} as text", str(value)
        yield from _of_list(value, where)
    elif isinstance(value, str):
        yield f"{where} as a number", 7
    else:
        yield f"{where} as text", str(value)
        if isinstance(value, float) and math.isfinite(value):
            yield f"{where} not a number", math.nan


def _of_dict(values: dict[str, Any], where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if values:
        yield f"{where} empty", {}
    for key, value in values.items():
        yield f"{where} without {key!r}", {other: values[other] for other in values if other != key}
        for what, part in _of(value, f"{where}.{key}"):
            yield what, values | {key: part}


def _of_list(values: list[Any], where: str) -> Iterator[tuple[str, list[Any]]]:
    if values:
        yield f"{where} empty", []
        yield f"{where} cut short", values[:-1]
        yield f"{where} one longer", [*values, values[-1]]
    if values and all(isinstance(value, int | float) for value in values):
        yield f"{where} as a tensor", torch.tensor(values)  # type: ignore[misc]
    for place in sorted({*range(min(len(values), _ITEMS - 1)), len(values) - 1} - {-1}):
        for what, part in _of(values[place], f"{where}[{place}]"):
            yield what, [*values[:place], part, *values[place + 1 :]]


def _of_tensor(value: Tensor, where: str) -> Iterator[tuple[str, Any]]:
    ways: dict[str, Callable[[Tensor], Any]] = {
        "as a list": Tensor.tolist,
        "empty": lambda tensor: tensor.flatten()[:0],
        "cut short": lambda tensor: tensor[:-1] if tensor.dim() else tensor,
        "of another shape": lambda tensor: tensor.unsqueeze(0),
        "of another dtype": lambda tensor: tensor.to(torch.float32 if tensor.dtype == torch.float64 else torch.float64),
        "not a number": _with_nan,
    }
    for what, change in ways.items():
        changed = change(value)
        if not same(changed, value):
            yield f"{where} {what}", changed


def _with_nan(tensor: Tensor) -> Tensor:
    if not tensor.dtype.is_floating_point or not tensor.numel():
        return tensor
    changed = tensor.clone()
    changed.view(-1)[-1] = math.nan
    return changed


def same(one: Any, other: Any) -> bool:
    """Return whether two values are the same, types, shapes and dtypes included."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and bool(torch.equal(one, other))
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)
