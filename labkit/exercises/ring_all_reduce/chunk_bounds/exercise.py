"""Cutting a tensor up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch

from labkit.checks.case import Case, Got, Value, Values
from labkit.checks.judged import Mistake, judged
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire
from labkit.exercises.ring_all_reduce.chunk_bounds.driver import drive
from labkit.exercises.ring_all_reduce.costs import calls_case, calls_of

Bounds = list[list[int]]


def bounds_case(name: str, sizes: Sequence[tuple[int, int]]) -> Case:
    """Return a case of chunk_bounds: (numel, num_chunks) of each call."""
    return calls_case(name, [("chunk_bounds", pair) for pair in sizes])


def _torch_bounds(numel: int, num_chunks: int) -> Bounds:
    pieces = torch.arange(numel).tensor_split(num_chunks)
    bounds, start = [], 0
    for piece in pieces:
        bounds.append([start, start + len(piece)])
        start += len(piece)
    return bounds


def split_by_torch(case: Case) -> list[Values]:
    """Return the bounds as torch.Tensor.tensor_split cuts (the oracle)."""
    return [{"values": cast(list[Value], [_torch_bounds(*args) for _, args in calls_of(case)])}]


def _bounds_calls(case: Case, got: Got) -> list[tuple[int, int, Bounds, Any]]:
    if not isinstance(got, tuple) or not isinstance(got[0].get("values"), list):
        return []
    values = cast(list[Any], got[0]["values"])
    return [(n, k, _torch_bounds(n, k), value) for (_, (n, k)), value in zip(calls_of(case), values, strict=False)]


def judge_bounds(case: Case, got: Got, wire: Wire) -> Verdict:
    """Return whether all bounds are right."""
    calls = _bounds_calls(case, got)
    for numel, num_chunks, expected, value in calls:
        if value != expected:
            return Verdict(
                False,
                message=f"chunk_bounds({numel}, {num_chunks}) gave {_pairs_text(value)}, expected "
                f"{_pairs_text(expected)}.",
                expected=_pairs_text(expected),
                got=_pairs_text(value),
            )
    return Verdict(bool(calls), "" if calls else "chunk_bounds was not called.")


def _pairs_text(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        return "[" + ", ".join(f"({start}, {end})" for start, end in value) + "]"
    return f"{value!r:.120}"


def _as_if(wrong: Callable[[int, int], Any]) -> Callable[[Case, Got, Wire], bool]:
    """Return whether all values are those of a known wrong way to cut, and not all of them right."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        calls = _bounds_calls(case, got)
        return any(v != e for _, _, e, v in calls) and all(v == wrong(n, k) for n, k, _, v in calls)

    return seen


def _sizes(value: Any) -> list[int] | None:
    if not isinstance(value, list) or not all(
        isinstance(pair, list) and len(pair) == 2 and all(isinstance(x, int) for x in pair) for pair in value
    ):
        return None
    return [end - start for start, end in value]


def _any_wrong(test: Callable[[int, int, list[int], Any], bool]) -> Callable[[Case, Got, Wire], bool]:
    def seen(case: Case, got: Got, wire: Wire) -> bool:
        for numel, num_chunks, expected, value in _bounds_calls(case, got):
            sizes = _sizes(value)
            if value != expected and sizes is not None and test(numel, num_chunks, sizes, value):
                return True
        return False

    return seen


def _ends_included(n: int, k: int) -> Any:
    return [[start, end - 1] for start, end in _torch_bounds(n, k)]


EXERCISE = judged(
    id="chunk_bounds",
    functions=("chunk_bounds",),
    driver=drive,
    oracle=split_by_torch,
    judge=judge_bounds,
    visible=(
        bounds_case("sizes that divide", [(12, 3), (4, 4)]),
        bounds_case("sizes that do not divide", [(10, 4), (11, 3)]),
        bounds_case("shorter than the number of chunks, and empty", [(2, 4), (0, 3), (5, 1)]),
    ),
    distributed=False,
    hints=(
        "10 elements in 4 chunks: how large would you cut them by hand?",
        "Every chunk gets numel // num_chunks elements; numel % num_chunks elements are left, one more for each of the "
        "first chunks. Each chunk starts where the last one ended.",
        "size, remainder = divmod(numel, num_chunks); end = start + size + (1 if chunk < remainder else 0).",
    ),
    mistakes=(
        Mistake(
            "end included",
            "The end is one too small: as in a slice, end is the first index that is not in the chunk.",
            _as_if(_ends_included),
        ),
        Mistake(
            "size instead of end",
            "The second number is the chunk's size; it must be its end.",
            _as_if(lambda n, k: [[start, end - start] for start, end in _torch_bounds(n, k)]),
        ),
        Mistake(
            "remainder dropped",
            "The chunks do not reach the end of the tensor: numel // num_chunks loses the remainder.",
            _any_wrong(lambda n, k, sizes, v: len(sizes) == k and all(s >= 0 for s in sizes) and 0 <= sum(sizes) < n),
        ),
        Mistake(
            "wrong number of chunks",
            "There must be exactly num_chunks pairs, empty ones included: (start, start).",
            _any_wrong(lambda n, k, sizes, v: len(sizes) != k),
        ),
        Mistake(
            "sizes differ by more than one",
            "Sizes may differ by one at most: give each of the first numel % num_chunks chunks one element more.",
            _any_wrong(lambda n, k, sizes, v: sum(sizes) == n and max(sizes) - min(sizes) > 1),
        ),
        Mistake(
            "longer chunks last",
            "The sizes are right but in the wrong order: the longer chunks come first.",
            _any_wrong(lambda n, k, sizes, v: sum(sizes) == n and max(sizes) - min(sizes) == 1),
        ),
        Mistake(
            "beyond the end",
            "A chunk reaches beyond the tensor: with numel < num_chunks the last chunks are empty.",
            _any_wrong(lambda n, k, sizes, v: sum(sizes) > n or any(pair[1] > n for pair in v)),
        ),
    ),
)
