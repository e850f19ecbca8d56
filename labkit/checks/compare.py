"""Compare what came with what should have come: the first place where they differ, in words and numbers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from labkit.checks.case import Value
from labkit.checks.finding import Finding
from labkit.checks.parting import parting
from labkit.words import number

_MANTISSA_BITS = {torch.bfloat16: 7, torch.float16: 10}
_RELATIVE = {torch.float32: 1e-5, torch.float64: 1e-12}
_SHOWN = 12


@dataclass(frozen=True)
class Difference:
    """Where two tensors differ first.

    Attributes:
        what: "type", "dtype", "shape" or "value".
        index: Flat index of the first different element, or -1.
        expected: What should be there.
        got: What is there.
        count: How many elements differ.
    """

    what: str
    index: int
    expected: str
    got: str
    count: int = 0


def tolerance(exact: Tensor, magnitude: Tensor, dtype: torch.dtype) -> Tensor:
    """Return how far each element may be from the exact result, in float64.

    For 16-bit floats this is half a unit in the last place: the one rounding that cannot be avoided, and no other.

    Args:
        exact: The result in float64.
        magnitude: The sum of the absolute values that went into it, float64.
        dtype: The type the result is stored in.
    """
    if dtype in _MANTISSA_BITS:
        exponent = torch.floor(torch.log2(exact.abs().clamp_min(1e-30)))
        return torch.exp2(exponent - _MANTISSA_BITS[dtype] - 1) * 1.01 + 1e-6 * magnitude
    return _RELATIVE.get(dtype, 0.0) * magnitude


def difference(got: Value, expected: Tensor, allowed: Tensor | None = None) -> Difference | None:
    """Return where `got` differs first from `expected`, or None where it does not.

    Args:
        got: What came.
        expected: What should have come; its dtype is checked unless `allowed` is given, when it is float64.
        allowed: Tolerance of each element, float64; None asks for equality.
    """
    if not isinstance(got, Tensor):
        return Difference("type", -1, "a tensor", f"{type(got).__name__} {got!r:.60}")
    if allowed is None and got.dtype != expected.dtype:
        return Difference("dtype", -1, str(expected.dtype), str(got.dtype))
    if got.shape != expected.shape:
        return Difference("shape", -1, str(tuple(expected.shape)), str(tuple(got.shape)))
    wrong = got != expected if allowed is None else ~((got.double() - expected.double()).abs() <= allowed)
    places = wrong.flatten().nonzero().flatten()
    if len(places) == 0:
        return None
    index = int(places[0])
    wanted, came = expected.flatten()[index].item(), got.flatten()[index].item()
    if number(wanted) == number(came):  # they differ further behind than numbers are usually shown
        return Difference("value", index, repr(wanted), repr(came), len(places))
    return Difference("value", index, number(wanted), number(came), len(places))


def listing(tensor: Tensor, around: int = 0) -> str:
    """Return the elements as a list, cut to a window around one of them where there are many."""
    flat = tensor.flatten()
    start = max(0, min(around - 3, len(flat) - _SHOWN))
    shown = ", ".join(number(value) for value in flat[start : start + _SHOWN].tolist())
    before = f"(from element {start}) ... " if start else ""
    return f"[{before}{shown}{', ...' if start + _SHOWN < len(flat) else ''}]"


def near(came: Tensor, wanted: Tensor, relative: float = 1e-9) -> bool:
    """Return whether two tensors are equal up to a part of the largest entry.

    Raises:
        ValueError: If they differ in shape or dtype, which is said elsewhere (see `labkit.checks.structure`).
    """
    if came.shape != wanted.shape or came.dtype != wanted.dtype:
        raise ValueError(f"{tuple(came.shape)} of {came.dtype} against {tuple(wanted.shape)} of {wanted.dtype}")
    size = max(float(wanted.abs().max()), 1e-30) if wanted.numel() else 1.0
    return bool(((came.double() - wanted.double()).abs() <= relative * size).all())


def wrong_value(mistake: str, what: str, came: Tensor, wanted: Tensor, rank: int | None = None) -> Finding:
    """Return the finding that shows both tensors, around the entry that is furthest off."""
    apart = torch.nan_to_num((came.double() - wanted.double()).abs(), nan=float("inf")).flatten()
    at = int(apart.argmax())
    message = f"{what} is wrong; entry {at} is furthest off."
    message += "" if mistake else parting({0: (came, wanted)}, [0])
    return Finding(mistake, message, listing(wanted, at), listing(came, at), rank)
