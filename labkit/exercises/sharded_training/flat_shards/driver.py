"""What a rank runs of flat_shards."""

from __future__ import annotations

import torch
from torch import Tensor

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.checks.values import tensors
from labkit.exercises.sharded_training.on_ranks import asker, cutter


def drive(functions: Functions, inputs: Values) -> Values:
    """Cut tensors into shards, gather them into others, scatter a third list (flat_shards).

    Inputs: tensors (the same on all ranks), targets (what is filled), gradients, optional marks. Between the beginning
    of each collective and its end stands a mark on the wire; with marks, it asks for a number, which is returned.
    """
    cut = cutter()
    ask = asker(inputs, cut)
    whole = tensors(inputs, "tensors")
    shards = [functions["shard_of"](each) for each in whole]
    theirs = {each.untyped_storage().data_ptr() for each in whole}
    copied = all(each.untyped_storage().data_ptr() not in theirs for each in shards)
    copies = [each.clone() for each in shards]
    targets = tensors(inputs, "targets")
    memory = [each.untyped_storage().data_ptr() for each in targets]
    used = torch.stack([each.requires_grad_().square().sum() for each in targets]).sum()
    cut()
    finish = functions["start_gather"]([each.clone() for each in shards], targets)
    first = ask()
    finish()
    cut()
    gradients = tensors(inputs, "gradients")
    collect = functions["start_scatter"](gradients)
    second = ask()
    means = collect()
    cut()
    return {
        "shards": copies,
        "copied": copied,
        "targets": [each.detach() for each in targets],
        "unseen": _goes_back(used),
        "kept_memory": memory == [each.untyped_storage().data_ptr() for each in targets],
        "means": list(means),
        "heard": [first, second],
    }


def _goes_back(loss: Tensor) -> bool:
    """Return whether autograd still goes back through a loss: it refuses where it has seen what it kept change."""
    try:
        torch.autograd.backward(loss)
    except RuntimeError:
        return False
    return True
