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
_NUMBER, _BACKWARDS, _GAP, _REST, _SHORT, _BEYOND, _APART, _LAST, _NOT_WHOLE = (
    "wrong number of chunks", "a chunk ends before it starts", "gap or overlap", "remainder dropped",
    "elements left out", "beyond the end", "sizes differ by more than one", "longer chunks last",
    "tensors for whole numbers",
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
    return next((name for name in _TRIED if name in shown), "")


_TRIED = (_NOT_WHOLE, _NUMBER, _BACKWARDS, _GAP, _SHORT, _REST, _BEYOND, _APART, _LAST)


def _of_one(numel: int, num_chunks: int, bounds: Any) -> str:
    if not all(type(place) is int for pair in bounds for place in pair):
        return _NOT_WHOLE
    if len(bounds) != num_chunks:
        return _NUMBER
    sizes = [end - start for start, end in bounds]
    if min(sizes) < 0:
        return _BACKWARDS
    if [start for start, _ in bounds] != [0, *(end for _, end in bounds[:-1])]:
        return _GAP
    if sum(sizes) < numel:
        return _REST if set(sizes) == {numel // num_chunks} else _SHORT
    if sum(sizes) > numel:
        return _BEYOND
    return _APART if max(sizes) - min(sizes) > 1 else _LAST


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
        Mistake(_NOT_WHOLE,
                "start and end are whole numbers of Python (int): an entry of a tensor is a tensor, and / makes a "
                "float. Take int(...) or .item(), and // for the size."),
        Mistake("sizes without places",
                "These are sizes alone. Return a pair for each chunk: where it starts, and where it ends.",
                {"chunk_bounds": lambda n, k: [end - start for start, end in _as_torch_cuts(n, k)]}),
        Mistake(_BACKWARDS, "A pair is (start, end), and a chunk does not end before it starts."),
        Mistake(_GAP, "The first chunk starts at 0, and every other one where the chunk before it ends."),
        Mistake(_SHORT, "The chunks do not reach the end of the tensor: their sizes must add up to numel."),
        Mistake(_REST, "The chunks do not reach the end of the tensor: numel // num_chunks loses the remainder."),
        Mistake(_NUMBER, "There must be exactly num_chunks pairs, empty ones included: (start, start)."),
        Mistake(_APART,
                "Sizes may differ by one at most: give each of the first numel % num_chunks chunks one element more."),
        Mistake(_LAST, "The sizes are right but in the wrong order: the longer chunks come first."),
        Mistake(_BEYOND,
                "A chunk reaches past the end of the tensor: their sizes must add up to numel. With numel < num_chunks "
                "the last chunks are empty."),
    ),
)  # fmt: skip
