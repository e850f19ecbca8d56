"""What a rank runs of sharded_optimizer."""

from __future__ import annotations

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.exercises.sharded_training.on_ranks import (
    OPTIONS,
    PlainAdamW,
    backward,
    handed,
    keeping,
    kind_for,
    model_for,
    num_kept,
    slow_down,
    steps_of,
    values_of,
)


def drive(functions: Functions, inputs: Values) -> Values:
    """Train a hard model; every rank has the same batch, so gradients are equal (sharded_optimizer).

    Inputs: seed, model, groups, steps (x, y, spare, slower).
    """
    model = model_for(inputs)
    made: list[PlainAdamW] = []
    optimizer = functions["ShardedOptimizer"](handed(model, inputs), keeping(made, kind_for(inputs)), **OPTIONS)
    after: list[Value] = []
    forgotten = True
    for step in steps_of(inputs):
        optimizer.zero_grad()
        forgotten &= all(each.grad is None or not each.grad.any() for each in model.parameters())
        if step["slower"]:
            slow_down(optimizer)
        backward(model, step)
        optimizer.step()
        after.append(values_of(model))
    return {"steps": after, "kept": num_kept(made), "forgotten": forgotten}
