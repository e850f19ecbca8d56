"""What each gradient that came is: the mean, the rank's own, a multiple of either, or none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from torch import Tensor

from labkit.checks.case import Case, Got, Value
from labkit.checks.tensor_values import at, close, ratio_of
from labkit.exercises.averaging.replay import Replay
from labkit.words import number


def marks_of_gradients(case: Case, got: Got, truth: Replay, step: int = 0) -> list[dict[str, str]]:
    """Return for each rank what each gradient of a step is: "mean", "none", "own", "own/N", "x 3" or "other".

    A gradient that is no multiple of anything is "other"; "x 3" is three times the mean.
    """
    if not isinstance(got, tuple):
        return []
    found = []
    for rank in range(case.world_size):
        came = at(got[rank], ("steps", step, "gradients"))
        wanted = cast(Mapping[str, Value], at(truth.expected[rank], ("steps", step, "gradients")))
        found.append(
            {n: _mark(_get(came, n), mean, truth.own[step][rank][n], case.world_size) for n, mean in wanted.items()}
        )
    return found


def _get(came: Any, name: str) -> Any:
    return came.get(name) if isinstance(came, dict) else None


def _mark(got: Value, mean: Value, own: Tensor | None, world_size: int) -> str:
    if close(got, mean):
        return "mean"
    if got is None:
        return "none"
    if own is not None and close(got, own):
        return "own"
    if own is not None and close(got, own / world_size):
        return "own/N"
    if isinstance(got, Tensor) and isinstance(mean, Tensor) and got.shape == mean.shape:
        ratio = ratio_of(got, mean)
        if ratio is not None:
            return f"x {number(round(ratio, 6))}"
    return "other"


def times(value: float) -> str:
    """Return the mark of a gradient that is so many times the mean."""
    return f"x {number(round(value, 6))}"


def is_multiple(one: Tensor, other: Value) -> bool:
    """Return whether a tensor is another one times a number."""
    return isinstance(other, Tensor) and one.shape == other.shape and bool(ratio_of(one, other))
