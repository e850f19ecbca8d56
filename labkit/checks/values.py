"""Typed access to inputs and results: what a key holds, of the type that is asked for.

Results have passed `labkit.checks.structure` before anything reads them, so a TypeError here is a fault of ours.
"""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor

from labkit.checks.case import Value, Values


def integer(values: Values, key: str) -> int:
    """Return the whole number under a key."""
    return cast(int, _of(values[key], int, key))


def number(values: Values, key: str) -> float:
    """Return the number under a key, whole or not."""
    return cast(float, _of(values[key], (int, float), key))


def text(values: Values, key: str) -> str:
    """Return the text under a key."""
    return cast(str, _of(values[key], str, key))


def flag(values: Values, key: str) -> bool:
    """Return the truth value under a key."""
    return cast(bool, _of(values[key], bool, key))


def tensor(values: Values, key: str) -> Tensor:
    """Return the tensor under a key."""
    return cast(Tensor, _of(values[key], Tensor, key))


def listed(values: Values, key: str) -> list[Any]:
    """Return the list under a key, whatever it holds."""
    return cast("list[Any]", _of(values[key], list, key))


def integers(values: Values, key: str) -> list[int]:
    """Return the list of whole numbers under a key."""
    return cast("list[int]", _all_of(values, key, int))


def texts(values: Values, key: str) -> list[str]:
    """Return the list of texts under a key."""
    return cast("list[str]", _all_of(values, key, str))


def tensors(values: Values, key: str) -> list[Tensor]:
    """Return the list of tensors under a key."""
    return cast("list[Tensor]", _all_of(values, key, Tensor))


def records(values: Values, key: str) -> list[dict[str, Value]]:
    """Return the list of dicts under a key."""
    return cast("list[dict[str, Value]]", _all_of(values, key, dict))


def record(values: Values, key: str) -> dict[str, Value]:
    """Return the dict under a key."""
    return cast("dict[str, Value]", _of(values[key], dict, key))


def named_tensors(values: Values, key: str) -> dict[str, Tensor]:
    """Return the dict of tensors under a key."""
    for item in record(values, key).values():
        _of(item, Tensor, key)
    return cast("dict[str, Tensor]", values[key])


def _all_of(values: Values, key: str, kind: type) -> Any:
    for item in listed(values, key):
        _of(item, kind, key)
    return values[key]


def _of(value: object, kind: type | tuple[type, ...], key: str) -> object:
    if not isinstance(value, kind):
        raise TypeError(f"{key!r} holds a {type(value).__name__}, not {kind}")
    return value
