"""What a rank runs of sharded_optimizer."""

from __future__ import annotations

import torch.distributed as dist

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.values import integer
from labkit.exercises.sharded_training.on_ranks import (
    OPTIONS,
    PlainAdamW,
    backward,
    handed,
    keeping,
    kind_for,
    model_for,
    num_kept,
    right_in_its_shard,
    slow_down,
    steps_of,
    values_of,
)


def drive(functions: Functions, inputs: Values) -> Values:
    """Train a hard model; every rank has the same batch, so gradients are equal (sharded_optimizer).

    Inputs: seed, model, groups, steps (x, y, spare, slower), optional beside: the seed of other numbers where a
    gradient is not the rank's shard.
    """
    model = model_for(inputs)
    made: list[PlainAdamW] = []
    optimizer = functions["ShardedOptimizer"](handed(model, inputs), keeping(made, kind_for(inputs)), **OPTIONS)
    after: list[Value] = []
    forgotten = True
    for number, step in enumerate(steps_of(inputs)):
        optimizer.zero_grad()
        forgotten &= all(each.grad is None or not each.grad.any() for each in model.parameters())
        if step["slower"]:
            slow_down(optimizer)
        backward(model, step)
        if "beside" in inputs:
            right_in_its_shard(model, integer(inputs, "beside"), number, dist.get_rank(), dist.get_world_size())
        optimizer.step()
        after.append(values_of(model))
    return {"steps": after, "kept": num_kept(made), "forgotten": forgotten}
