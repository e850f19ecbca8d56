"""How far a gradient under DDP may be from the mean, because of what its compressor rounds."""

from __future__ import annotations

import torch

from labkit.checks.case import Case
from labkit.checks.on_ranks.hard_model import HardModel
from labkit.checks.on_ranks.model_state import loss_of
from labkit.checks.values import integer, number, record, tensors, text
from labkit.exercises.gradient_compression.unpacked import OWN

MODEL = {"norm": False, "unused": False}
"""Options of the hard model in all cases under DDP."""


def rounding(case: Case) -> float:
    """Return how far a gradient under DDP may be from the mean."""
    about = record(case.inputs[0], "compressor")
    if text(about, "kind") == OWN:
        # half a step of Int8 on each rank, and half a step that the last one left: steps are 1/127 of the largest entry
        return 1.1 * sum(_largest_entries(case)) / 127
    # a gradient at the border of two steps may round either way on each rank
    return case.world_size * number(about, "step")


def _largest_entries(case: Case) -> list[float]:
    """Return for each rank the largest entry of its own gradients in any step, divided by the ranks."""
    model, found = HardModel(integer(case.inputs[0], "seed"), **MODEL), []
    trained = [each for each in model.parameters() if each.requires_grad]
    for inputs in case.inputs:
        largest = 0.0
        for x, y in zip(tensors(inputs, "x"), tensors(inputs, "y"), strict=True):
            gradients = torch.autograd.grad(loss_of(model(x), y), trained, allow_unused=True)
            largest = max(largest, *(float(each.abs().max()) for each in gradients if each is not None))
        found.append(largest / case.world_size)
    return found
