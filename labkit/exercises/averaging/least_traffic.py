"""What must travel so that ranks begin alike, and so that gradients are averaged."""

from __future__ import annotations

from labkit.checks.case import Case
from labkit.checks.least_traffic import MOST_PACKED, Bytes, both_ways
from labkit.checks.values import listed
from labkit.exercises.averaging.replay import models_of


def of_start(case: Case) -> dict[int, Bytes]:
    """Return the least bytes in which all ranks come to hold rank 0's parameters and buffers."""
    model = models_of(case)[0]
    size = MOST_PACKED * sum(each.numel() for each in (*model.parameters(), *model.buffers()))
    others = {rank: Bytes(into=size) for rank in range(1, case.world_size)}
    return {0: Bytes(out=size), **others} if others else {}


def of_gradients(case: Case) -> dict[int, Bytes]:
    """Return the least bytes in which the gradients of one backward pass are averaged."""
    return both_ways(range(case.world_size), _num_trained(case))


def of_training(case: Case) -> dict[int, Bytes]:
    """Return the least bytes of the steps of a training in which something is averaged."""
    steps = [listed(inputs, "steps") for inputs in case.inputs]
    shared = sum(len(step["x"]) > int(step.get("quiet", 0)) for step in steps[0])
    return both_ways(range(case.world_size), _num_trained(case) * shared)


def of_batches(case: Case) -> dict[int, Bytes]:
    """Return the least bytes of a training in which ranks have unlike numbers of batches."""
    lengths = [len(listed(inputs, "x")) for inputs in case.inputs]
    counts = {rank: min(own, max(lengths)) for rank, own in enumerate(lengths)}
    alone = sorted(lengths)[-2] if len(lengths) > 1 else 0  # in later steps one rank trains by itself
    size = MOST_PACKED * _num_trained(case)
    return {rank: Bytes(size * min(own, alone), size * min(own, alone)) for rank, own in counts.items()}


def _num_trained(case: Case) -> int:
    """Return the number of trained elements that every forward uses."""
    model = models_of(case)[0]
    named = model.named_parameters()
    return sum(each.numel() for name, each in named if each.requires_grad and not name.startswith("spare."))
