"""What a rank runs of flat_shards."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.exercises.sharded_training.on_ranks import cutter


def drive(functions: Functions, inputs: Values) -> Values:
    """Cut tensors into shards, gather them into others, scatter a third list (flat_shards).

    Inputs: tensors (the same on all ranks), targets (what is filled), gradients. Between the beginning of each
    collective and its end stands a mark on the wire.
    """
    cut = cutter()
    tensors = cast(list[Tensor], inputs["tensors"])
    shards = [functions["shard_of"](each) for each in tensors]
    theirs = {each.untyped_storage().data_ptr() for each in tensors}
    copied = all(each.untyped_storage().data_ptr() not in theirs for each in shards)
    copies = [each.clone() for each in shards]
    targets = cast(list[Tensor], inputs["targets"])
    memory = [each.untyped_storage().data_ptr() for each in targets]
    used = torch.stack([each.requires_grad_().square().sum() for each in targets]).sum()
    cut()
    finish = functions["start_gather"]([each.clone() for each in shards], targets)
    cut()
    finish()
    cut()
    gradients = cast(list[Tensor], inputs["gradients"])
    collect = functions["start_scatter"](gradients)
    cut()
    means = collect()
    cut()
    return {
        "shards": cast(Value, copies),
        "copied": copied,
        "targets": cast(Value, [each.detach() for each in targets]),
        "unseen": _goes_back(used),
        "kept_memory": memory == [each.untyped_storage().data_ptr() for each in targets],
        "means": list(means),
    }


def _goes_back(loss: Tensor) -> bool:
    """Return whether autograd still goes back through a loss: it refuses where it has seen what it kept change."""
    try:
        torch.autograd.backward(loss)
    except RuntimeError:
        return False
    return True
