"""Gradients, parameters and buffers that came, against what must come: the first difference, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks.case import Value, Values
from labkit.checks.compare import listing
from labkit.checks.finding import Finding
from labkit.words import are_wrong, number

_RTOL, _ATOL = 1e-9, 1e-12


def close(a: Value, b: Value, rtol: float = _RTOL) -> bool:
    """Return whether two values are equal up to rounding, in float64 if not told otherwise; None equals None only."""
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return a is None and b is None
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.allclose(a, b, rtol=rtol, atol=_ATOL * rtol / _RTOL) if a.is_floating_point() else torch.equal(a, b)


def first_wrong(got: Value, expected: Mapping[str, Value], rtol: float = _RTOL) -> str | None:
    """Return the name of the first tensor that differs, or None."""
    came = got if isinstance(got, dict) else {}
    return next((name for name, wanted in expected.items() if not close(came.get(name), wanted, rtol)), None)


def compare_ranks(
    got: tuple[Values, ...], expected: list[dict[str, Value]], path: tuple[Any, ...], what: str, rtol: float = _RTOL
) -> Finding | None:
    """Return what is wrong with the first tensor that is wrong on some rank, or None.

    Args:
        got: What came from each rank.
        expected: What must come.
        path: Keys that lead to a dict of tensors by name.
        what: Where that is, in words: "after step 0 the gradient".
        rtol: By how much of its size a number may be off.
    """
    wrong: dict[int, str] = {}
    for rank, wanted in enumerate(expected):
        name = first_wrong(at(got[rank], path), cast(Mapping[str, Value], at(wanted, path)), rtol)
        if name is not None:
            wrong[rank] = name
    if not wrong:
        return None
    rank, name = next(iter(wrong.items()))
    came, wanted_dict = at(got[rank], path), cast(Mapping[str, Value], at(expected[rank], path))
    mine = came.get(name) if isinstance(came, dict) else None
    return Finding(
        "",
        message=f"{are_wrong(wrong, len(expected))}: {what} of {name} on rank {rank}"
        + _difference(mine, wanted_dict[name]),
        expected=f"rank {rank}, {name}: {_text(wanted_dict[name], mine)}",
        got=f"rank {rank}, {name}: {_text(mine, wanted_dict[name])}",
        rank=rank,
    )


def at(values: Any, path: tuple[Any, ...]) -> Any:
    """Return what lies at the end of a path of keys, None where it breaks off."""
    for key in path:
        try:
            values = values[key]
        except (KeyError, IndexError, TypeError):
            return None
    return values


def _difference(got: Value, wanted: Value) -> str:
    if wanted is None:
        return " should be None: no rank has one."
    if got is None:
        return " is None."
    assert isinstance(wanted, Tensor)
    if not isinstance(got, Tensor) or got.shape != wanted.shape or got.dtype != wanted.dtype:
        return " is not a tensor of the same shape and dtype."
    ratio = ratio_of(got, wanted)
    if ratio is None:
        return " is wrong."
    if not ratio:
        return f" is 0{' everywhere' if wanted.numel() > 1 else ''}."
    if abs(ratio - 1) < 1e-6:
        return " is right but for its last digits: something was computed in a narrower dtype than the values have."
    if wanted.numel() == 1 and not _is_simple(ratio):
        return " is wrong."
    return f" is {number(round(ratio, 6))} times what it should be."


def _is_simple(ratio: float) -> bool:
    """Return whether a factor, or one divided by it, is a whole number: of a single number any factor would do."""
    whole = (abs(each - round(each)) < 1e-6 for each in (ratio, 1 / ratio if ratio else 0.0))
    return any(whole)


def ratio_of(got: Tensor, wanted: Tensor) -> float | None:
    """Return the one factor between all elements of two tensors, or None where there is none."""
    if wanted.numel() == 0 or not wanted.is_floating_point():
        return None
    scale = wanted.abs().max()
    if not scale > 0:
        return None
    factor = (got * wanted).sum() / (wanted * wanted).sum()
    return float(factor) if torch.allclose(got, factor * wanted, rtol=1e-7, atol=1e-10) else None


def _text(value: Value, other: Value) -> str:
    """Return a value, of a long tensor the window in which it first differs from the other."""
    if not isinstance(value, Tensor):
        return str(value)
    apart = elements_apart(value, other).flatten().nonzero() if isinstance(other, Tensor) else None
    return listing(value, int(apart[0]) if apart is not None and len(apart) else 0)


def elements_apart(a: Tensor, b: Tensor) -> Tensor:
    """Return which elements of two tensors differ, up to rounding in float64; none where shapes or dtypes differ."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return torch.zeros(a.shape, dtype=torch.bool)
    return ~torch.isclose(a, b, rtol=_RTOL, atol=_ATOL) if a.is_floating_point() else a != b
