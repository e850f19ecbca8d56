"""The learner's own sparse compressor, memory and hook together under torch's DDP, in one bucket."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from labkit.checks.case import Case, Values
from labkit.checks.compare import near, wrong_value
from labkit.checks.finding import Finding
from labkit.checks.values import number, record, records, text

SPARSE = ("TopK", "RandomK")

Gradients: TypeAlias = Sequence[Sequence[Mapping[str, Tensor]]]
"""For each step each rank's own gradients by parameter, divided by the ranks."""


def kept_of(case: Case, entries: int) -> int:
    """Return how many entries each rank keeps of so many."""
    options = record(record(case.inputs[0], "compressor"), "options")
    return max(1, int(number(options, "ratio") * entries))


def wrong(case: Case, got: tuple[Values, ...], gradients: Gradients) -> Iterator[Finding]:
    """Yield what is wrong: ranks that differ, the first step, then what was lost of all steps.

    In the first step no residual is there. Where entries of the bucket lie may change after it, so of the others it is
    asked whether all there was has been applied or still waits.
    """
    largest = text(record(case.inputs[0], "compressor"), "name") == "TopK"
    came = [[_flat(step) for step in records(values, "gradients")] for values in got]
    for rank, of_rank in enumerate(came):
        for step, mine in enumerate(of_rank):
            if not near(mine, came[0][step]):
                message = f"Under torch's DDP, step {step}, rank {rank}: the gradients"
                yield wrong_value("", message, mine, came[0][step], rank=rank)
    flats = [[_flat(each) for each in of_ranks] for of_ranks in gradients]
    first, whole = came[0][0], torch.stack(flats[0]).sum(0)
    count = kept_of(case, whole.numel())
    right = torch.stack([_largest(each, count) for each in flats[0]]).sum(0) if largest else whole * (first != 0)
    if not near(first, right):
        twice = near(first, right * case.world_size)
        name = "sum instead of mean" if twice else "wrong under DDP"
        yield wrong_value(name, "Under torch's DDP, step 0: the gradients, end to end,", first, right)
    there = sum(float(each.sum()) for of_ranks in flats for each in of_ranks)
    applied, waiting = (sum(float(each.sum()) for each in came[0]), sum(number(each, "waiting") for each in got))
    if abs(applied + waiting - there) > 1e-6 * max(1.0, sum(float(each.abs().sum()) for of in flats for each in of)):
        message = (
            f"Your own parts under torch's DDP, {len(flats)} steps: all gradients add up to {there:.6g}; those applied "
            f"add up to {applied:.6g}, and the residuals hold {waiting:.6g}."
        )
        yield Finding("lost on its way", message, f"{there:.6g}", f"{applied + waiting:.6g}")


def _flat(values: Mapping[str, object]) -> Tensor:
    return torch.cat([values[name].flatten() for name in sorted(values) if isinstance(values[name], Tensor)])  # type: ignore[attr-defined]


def _largest(flat: Tensor, count: int) -> Tensor:
    border = flat.abs().sort(descending=True).values[count - 1]
    return torch.where(flat.abs() >= border, flat, 0.0)
