"""What a rank runs of saved_state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.hard_model import HardModel
from labkit.checks.values import flag, integer
from labkit.exercises.sharded_training.on_ranks import (
    OPTIONS,
    PlainAdamW,
    backward,
    grouped,
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
    """Train a hard model, save; load what one process saved after the same steps, train on, save (saved_state).

    Inputs: seed, model, groups, steps (x, y, spare, slower), resume: how many steps there are before; optional
    beside: the seed of other numbers where a gradient is not the rank's shard.
    """
    groups, steps, resume = flag(inputs, "groups"), steps_of(inputs), integer(inputs, "resume")

    def sharded(model: HardModel, made: list[PlainAdamW]) -> Any:
        params = grouped(model, True) if groups else model.parameters()
        return functions["SavedOptimizer"](params, keeping(made, kind_for(inputs)), **OPTIONS)

    model = model_for(inputs)
    optimizer = sharded(model, [])
    for number, step in enumerate(steps[:resume]):
        take(optimizer, model, step, own_shard(inputs, number))
    saved = as_data(optimizer.state_dict())

    model, plain = trained_alone(inputs, resume)
    of_one_process = plain.state_dict()
    before = as_data(of_one_process)
    made: list[PlainAdamW] = []
    optimizer = sharded(model, made)
    optimizer.load_state_dict(of_one_process)
    as_it_was = same(before, as_data(of_one_process))
    after: list[Value] = []
    for number, step in enumerate(steps[resume:], resume):
        take(optimizer, model, step, own_shard(inputs, number))
        after.append(values_of(model))
        if number == resume:
            optimizer.state_dict()  # saving changes nothing: what follows is as without it
    left_alone = same(before, as_data(of_one_process))
    kept, again = num_kept(made), as_data(optimizer.state_dict())
    return {
        "saved": saved,
        "again": again,
        "steps": after,
        "kept": kept,
        "left_alone": left_alone,
        "as_it_was": as_it_was,
    }


def own_shard(inputs: Values, number: int) -> Callable[[HardModel], None]:
    """Return what leaves a rank's gradients right in its own shard alone, where the case says so."""

    def leave(model: HardModel) -> None:
        if "beside" in inputs:
            right_in_its_shard(model, integer(inputs, "beside"), number, dist.get_rank(), dist.get_world_size())

    return leave


def take(
    optimizer: Any, model: HardModel, step: dict[str, Any], after_backward: Callable[[HardModel], None] | None = None
) -> None:
    """Take one step, after halving the learning rates as often as it says."""
    optimizer.zero_grad()
    for _ in range(int(step["slower"])):
        slow_down(optimizer)
    backward(model, step)
    if after_backward is not None:
        after_backward(model)
    optimizer.step()


def trained_alone(inputs: Values, num_steps: int) -> tuple[HardModel, PlainAdamW]:
    """Return model and optimizer of one process after so many steps; every rank has the same batch."""
    model = model_for(inputs)
    optimizer = kind_for(inputs)(grouped(model, flag(inputs, "groups")), **OPTIONS)
    for step in steps_of(inputs)[:num_steps]:
        take(optimizer, model, step)
    return model, optimizer


def as_data(saved: Any) -> Value:
    """Return a copy of what state_dict returned as a value; None where it is nothing of the kind."""
    if not isinstance(saved, Mapping) or not isinstance(saved.get("state"), Mapping):
        return None
    state = {str(key) if isinstance(key, int) else repr(key): _copied(each) for key, each in saved["state"].items()}
    groups = [
        {"params": list(group.get("params", ())), "lr": group.get("lr"), "weight_decay": group.get("weight_decay")}
        for group in saved.get("param_groups", ())
    ]
    return {"state": state, "groups": groups}


def _copied(kept: Mapping[str, Any]) -> dict[str, Any]:
    return {name: each.detach().clone() if isinstance(each, Tensor) else float(each) for name, each in kept.items()}


def same(a: Value, b: Value) -> bool:
    """Return whether two saved states are the same to the bit."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return torch.equal(a, b)
    return bool(a == b)
