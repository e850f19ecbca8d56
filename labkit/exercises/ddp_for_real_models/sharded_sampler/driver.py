"""What a rank runs of sharded_sampler."""

from __future__ import annotations

from itertools import islice
from typing import Any

import torch

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.values import listed


def drive(functions: Functions, inputs: Values) -> Values:
    """Build the sampler of every rank and list what it yields in each epoch; more than it may is cut off.

    Inputs: samplers: dicts with size, world_size, shuffle, seed, drop_last, epochs (None: set_epoch is not called).
    """
    found: list[Value] = []
    before = torch.get_rng_state()
    for about in listed(inputs, "samplers"):
        options = {name: about[name] for name in ("shuffle", "seed", "drop_last") if name in about}
        of_ranks: list[Value] = []
        for rank in range(about["world_size"]):
            sampler = functions["ShardedSampler"](about["size"], about["world_size"], rank, **options)
            of_ranks.append([_epoch(sampler, epoch, about["size"]) for epoch in about["epochs"]])
        found.append(of_ranks)
    return {"drawn": found, "reseeded": int(not torch.equal(before, torch.get_rng_state()))}


def most_indices(size: int) -> int:
    """Return after how many indices a sampler of that many samples is cut off, more than any right one yields."""
    return 2 * size + 8


def _epoch(sampler: Any, epoch: int | None, size: int) -> Value:
    if epoch is not None:
        sampler.set_epoch(epoch)
    came = list(islice(iter(sampler), most_indices(size)))
    tensors = sum(isinstance(index, torch.Tensor) for index in came)
    return {"length": len(sampler), "indices": [int(index) for index in came], "tensors": tensors}
