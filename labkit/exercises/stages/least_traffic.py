"""What must travel in a pipeline: every microbatch's activations, from each stage to the next."""

from __future__ import annotations

from labkit.checks.case import Case
from labkit.checks.least_traffic import MOST_PACKED, Bytes
from labkit.checks.values import integer, integers, tensor
from labkit.exercises.stages.pipeline_cases import members


def of_stages(case: Case) -> dict[int, Bytes]:
    """Return the least bytes where each rank has one stage."""
    ranks, num_stages = members(case), integer(case.about, "stages")
    return _handed_on([
        (None if place % num_stages == 0 else ranks[place - 1], rank, _num_elements(case, rank))
        for place, rank in enumerate(ranks)
    ])  # fmt: skip


def _num_elements(case: Case, rank: int) -> int:
    inputs = case.inputs[rank]
    return tensor(inputs, "sample").numel() * sum(integers(inputs, "sizes"))


def _handed_on(hops: list[tuple[int | None, int, int]]) -> dict[int, Bytes]:
    """Return the bounds of hops: from whom (None for the data itself), to whom, and how many elements."""
    found: dict[int, Bytes] = {}
    for source, rank, count in hops:
        if source is not None and source != rank:
            size = MOST_PACKED * count
            found[source] = Bytes(found.get(source, Bytes()).out + size, found.get(source, Bytes()).into)
            found[rank] = Bytes(found.get(rank, Bytes()).out, found.get(rank, Bytes()).into + size)
    return found
