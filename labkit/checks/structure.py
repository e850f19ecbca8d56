"""What came, held against the structure of what should have come: types, lengths, keys, shapes, dtypes, no stray NaN.

One place for all exercises: a result that is empty, shortened, nested, of another type, or not a number never passes,
whatever an exercise's own `find` looks at. Values are not compared here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from labkit.checks.case import Case, Values
from labkit.checks.finding import Finding

NOTHING, WRONG_TYPE, WRONG_LENGTH, WRONG_SHAPE, WRONG_DTYPE, NOT_A_NUMBER = (
    "nothing returned", "wrong type", "wrong length", "shape lost", "dtype lost", "not a number",
)  # fmt: skip


@dataclass(frozen=True)
class Each:
    """Stands for a list of any length whose items all have one structure.

    Attributes:
        item: The structure of each item: a value like it, a type, or another of these classes.
        least: How many there are at least.
        most: How many there are at most; None for no limit.
    """

    item: Any
    least: int = 0
    most: int | None = None


@dataclass(frozen=True)
class EachKey:
    """Stands for a dict of any keys whose values all have one structure."""

    value: Any


@dataclass(frozen=True)
class OneOf:
    """Stands for a value that has one of these structures; the first is named where none fits."""

    choices: tuple[Any, ...]


ANYTHING = OneOf(())
"""Stands for a value that is looked at elsewhere."""


def and_more(oracle: Callable[[Case], Sequence[Values]], **more: Any) -> Callable[[Case], list[Any]]:
    """Return the structure of what an oracle returns, and under these keys, which it lacks, of what comes besides."""
    return lambda case: [{**right, **more} for right in oracle(case)]


def structure_problem(wanted: Sequence[Any], got: Sequence[Values]) -> Finding | None:
    """Return the first place where what came has another structure than what should have come, or None.

    Args:
        wanted: For each rank a value of the right structure; types and the classes above stand for any value like them.
        got: What came from each rank.
    """
    if len(got) != len(wanted):
        return Finding(WRONG_LENGTH, f"{len(got)} ranks returned a result, expected {len(wanted)}.")
    for rank, (right, came) in enumerate(zip(wanted, got, strict=True)):
        found = _differs(right, came, "")
        if found is not None:
            mistake, text = found
            where = f"Rank {rank}: " if len(wanted) > 1 else ""
            return Finding(mistake, f"{where}{text}", rank=rank if len(wanted) > 1 else None)
    return None


def said_of_call(functions: Sequence[str], case: Case, message: str, returned: Mapping[str, str] | None = None) -> str:
    """Return a message about "values[2]" in terms of the case's third call of a function, where it is of calls.

    Args:
        functions: That an exercise asks for.
        case: Its inputs may list the calls under "calls", each a dict with the function's name.
        message: What `structure_problem` says.
        returned: Key of a result, or of a list of them -> the function that returned it.
    """
    rank, place = _OF_A_RANK.match(message), _OF_A_CALL.match(message, _start(message))
    if place is None:
        return message
    name, number = (returned or {}).get(place[1]), None if place[2] is None else int(place[2])
    if name is None and place[1] in ("values", "answers") and number is not None:
        calls = case.inputs[0].get("calls")
        call = calls[number] if isinstance(calls, list) and number < len(calls) else None
        name = call.get("function") if isinstance(call, dict) else functions[0] if len(functions) == 1 else None
    which = "" if number is None else f" in call {number + 1}"
    before = rank[0] if rank else ""
    what = f"Entry {place[3]} of what" if place[3] else "What"
    what = what[0].lower() + what[1:] if rank else what
    return f"{before}{what} {name} returned{which}{message[place.end() :]}" if name else message


def returned_by(message: str) -> str:
    """Return of which function's result a message says that it has another form, or "": `said_of_call` says so."""
    found = _RETURNED.match(message, _start(message))
    return found[1] if found else ""


def _start(message: str) -> int:
    rank = _OF_A_RANK.match(message)
    return rank.end() if rank else 0


def in_words(value: object) -> object:
    """Return what a driver says of a value that cannot cross, with None for "a NoneType"; other values as they are."""
    return "nothing (None)" if value == "a NoneType" else value


_OF_A_RANK = re.compile(r"Rank \d+: ")
_OF_A_CALL = re.compile(r"(\w+)(?:\[(\d+)\])?((?:\[\d+\])*)(?= )")
_RETURNED = re.compile(r"(?:[Ee]ntry [\[\]\d]+ of )?[Ww]hat (\w+) returned\b")


def _differs(wanted: Any, came: Any, path: str) -> tuple[str, str] | None:
    if isinstance(wanted, OneOf):
        found = [_differs(choice, came, path) for choice in wanted.choices]
        return found[0] if found and None not in found else None
    if isinstance(wanted, Each):
        if not isinstance(came, list):
            return _other_type("a list", came, path)
        if len(came) < wanted.least or (wanted.most is not None and len(came) > wanted.most):
            bounds = f"at least {wanted.least}" if len(came) < wanted.least else f"at most {wanted.most}"
            return WRONG_LENGTH, f"{_place(path)} has {_entries(came)}, expected {bounds}."
        return _first_of((wanted.item, item, f"{path}[{place}]") for place, item in enumerate(came))
    if isinstance(wanted, EachKey):
        if not isinstance(came, dict):
            return _other_type("a dict", came, path)
        return _first_of((wanted.value, item, f"{path}.{key}") for key, item in came.items())
    if isinstance(wanted, type):
        return _of_type(wanted, came, path)
    if isinstance(wanted, Tensor):
        return _tensor(wanted, came, path)
    if isinstance(wanted, dict):
        if not isinstance(came, dict):
            return _other_type("a dict", came, path)
        missing = [key for key in wanted if key not in came]
        if missing:
            return WRONG_LENGTH, f"{_place(path)} has no {missing[0]!r}."
        return _first_of((right, came[key], f"{path}.{key}" if path else str(key)) for key, right in wanted.items())
    if isinstance(wanted, list | tuple):
        if not isinstance(came, list):
            return _other_type("a list", came, path)
        if len(came) != len(wanted):
            return WRONG_LENGTH, f"{_place(path)} has {_entries(came)}, expected {len(wanted)}."
        return _first_of(
            (right, item, f"{path}[{place}]") for place, (right, item) in enumerate(zip(wanted, came, strict=True))
        )
    if wanted is None:
        return None if came is None else _other_type("None", came, path)
    if isinstance(wanted, float) and wanted != wanted:
        return _of_type(float, 0.0 if isinstance(came, float) else came, path)
    return _of_type(float if type(wanted) is int else type(wanted), came, path)


def _first_of(pairs: Any) -> tuple[str, str] | None:
    return next((found for found in (_differs(*pair) for pair in pairs) if found is not None), None)


def _of_type(kind: type, came: Any, path: str) -> tuple[str, str] | None:
    """A number may be whole or not; True is no number."""
    if kind in (int, float):
        if isinstance(came, bool) or not isinstance(came, int | float):
            return _other_type("a number", came, path)
        return (NOT_A_NUMBER, f"{_place(path)} is NaN.") if came != came else None
    if kind is Tensor:
        if not isinstance(came, Tensor):
            return _other_type("a tensor", came, path)
        return (NOT_A_NUMBER, f"{_place(path)} contains NaN.") if _has_nan(came) else None
    return None if isinstance(came, kind) else _other_type(f"a {kind.__name__}", came, path)


def _tensor(wanted: Tensor, came: Any, path: str) -> tuple[str, str] | None:
    if not isinstance(came, Tensor):
        return _other_type("a tensor", came, path)
    if came.shape != wanted.shape:
        return WRONG_SHAPE, f"{_place(path)} has shape {tuple(came.shape)}, expected {tuple(wanted.shape)}."
    if came.dtype != wanted.dtype:
        return WRONG_DTYPE, f"{_place(path)} has dtype {came.dtype}, expected {wanted.dtype}."
    if _has_nan(came) and bool((came.isnan() & ~wanted.isnan()).any()):
        return NOT_A_NUMBER, f"{_place(path)} contains NaN."
    return None


def _has_nan(tensor: Tensor) -> bool:
    return tensor.dtype.is_floating_point and bool(torch.isnan(tensor).any())


def _other_type(wanted: str, came: Any, path: str) -> tuple[str, str]:
    if came is None:
        return NOTHING, f"{_place(path)} is None, expected {wanted}."
    if isinstance(came, Tensor):
        return WRONG_TYPE, f"{_place(path)} is a tensor of shape {tuple(came.shape)}, expected {wanted}."
    if isinstance(came, str) and came.startswith("a "):  # what a driver says of a value that cannot cross
        return WRONG_TYPE, f"{_place(path)} is {in_words(came)}, expected {wanted}."
    return WRONG_TYPE, f"{_place(path)} is {came!r:.60} ({type(came).__name__}), expected {wanted}."


def _entries(came: Sequence[Any]) -> str:
    return "1 entry" if len(came) == 1 else f"{len(came) or 'no'} entries"


def _place(path: str) -> str:
    return path or "the result"
