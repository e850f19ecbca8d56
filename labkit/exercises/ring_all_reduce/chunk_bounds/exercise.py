"""Cutting a tensor up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from labkit.checks.case import Case
from labkit.checks.declared import Mistake
from labkit.checks.formulas import Counted, calls_case, formulas
from labkit.exercises.ring_all_reduce.chunk_bounds.driver import drive

Bounds = list[list[int]]
_REST, _NUMBER, _APART, _LAST, _BEYOND = (
    "remainder dropped", "wrong number of chunks", "sizes differ by more than one", "longer chunks last",
    "beyond the end",
)  # fmt: skip


def bounds_case(name: str, sizes: Sequence[tuple[int, int]]) -> Case:
    """Return a case of chunk_bounds: (numel, num_chunks) of each call."""
    return calls_case(name, [("chunk_bounds", pair) for pair in sizes])


def _as_torch_cuts(numel: int, num_chunks: int) -> Bounds:
    bounds, start = [], 0
    for piece in torch.arange(numel).tensor_split(num_chunks):
        bounds.append([start, start + len(piece)])
        start += len(piece)
    return bounds


RIGHT: Counted = {"chunk_bounds": _as_torch_cuts}


def _of_sizes(calls: Sequence[tuple[Sequence[Any], Any]]) -> str:
    """Return the mistake that the sizes of the chunks show, or ""; what some calls show goes before what others do."""
    shown = {_of_one(numel, num_chunks, bounds) for (numel, num_chunks), bounds in calls}
    return next((name for name in (_REST, _NUMBER, _APART, _LAST, _BEYOND) if name in shown), "")


def _of_one(numel: int, num_chunks: int, bounds: Any) -> str:
    sizes = [end - start for start, end in bounds]
    if len(sizes) != num_chunks:
        return _NUMBER
    if min(sizes) >= 0 and sum(sizes) < numel:
        return _REST
    if sum(sizes) == numel and max(sizes) > min(sizes):
        return _APART if max(sizes) - min(sizes) > 1 else _LAST
    return _BEYOND if max(end for _, end in bounds) > numel or sum(sizes) > numel else ""


def _in_pairs(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        return "[" + ", ".join(f"({start}, {end})" for start, end in value) + "]"
    return f"{value!r:.120}"


EXERCISE = formulas(
    id="chunk_bounds",
    functions=("chunk_bounds",),
    driver=drive,
    counted=RIGHT,
    otherwise=_of_sizes,
    shown=_in_pairs,
    visible=(
        bounds_case("sizes that divide", [(12, 3), (4, 4)]),
        bounds_case("sizes that do not divide", [(10, 4), (11, 3)]),
        bounds_case("shorter than the number of chunks, and empty", [(2, 4), (0, 3), (5, 1)]),
    ),
    hints=(
        "10 elements in 4 chunks: how large would you cut them by hand?",
        "Every chunk gets numel // num_chunks elements; numel % num_chunks elements are left, one more for each of the "
        "first chunks. Each chunk starts where the last one ended.",
        "size, remainder = divmod(numel, num_chunks); end = start + size + (1 if chunk < remainder else 0).",
    ),
    mistakes=(
        Mistake("end included",
                "The end is one too small: as in a slice, end is the first index that is not in the chunk.",
                {"chunk_bounds": lambda n, k: [[start, end - 1] for start, end in _as_torch_cuts(n, k)]}),
        Mistake("size instead of end", "The second number is the chunk's size; it must be its end.",
                {"chunk_bounds": lambda n, k: [[start, end - start] for start, end in _as_torch_cuts(n, k)]}),
        Mistake(_REST, "The chunks do not reach the end of the tensor: numel // num_chunks loses the remainder."),
        Mistake(_NUMBER, "There must be exactly num_chunks pairs, empty ones included: (start, start)."),
        Mistake(_APART,
                "Sizes may differ by one at most: give each of the first numel % num_chunks chunks one element more."),
        Mistake(_LAST, "The sizes are right but in the wrong order: the longer chunks come first."),
        Mistake(_BEYOND,
                "A chunk reaches past the end of the tensor: with numel < num_chunks the last chunks are empty."),
    ),
)  # fmt: skip
