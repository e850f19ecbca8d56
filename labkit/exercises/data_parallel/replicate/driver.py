"""What a rank runs of replicate."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.model_state import gradients_of, loss_of, model_of, state_of
from labkit.exercises.data_parallel.nested_values import describe
from labkit.exercises.data_parallel.on_ranks import devices_of
from labkit.torch_port.tensors import own_buffers, own_parameters


def drive(functions: Functions, inputs: Values) -> Values:
    """Call replicate on a hard model; run the replicas, the last one first, and go backward (replicate).

    Inputs: seed, model (options), devices, train, x and y (one tensor for each replica). With another device than the
    CPU only where the replicas' tensors lie is returned. The loss is the sum of (n + 1) times replica n's loss.
    """
    model = model_of(inputs)
    model.train(cast(bool, inputs["train"]))
    devices = devices_of(inputs)
    own = [*model.parameters(), *model.buffers()]
    replicas = functions["replicate"](model, devices)
    if not isinstance(replicas, list | tuple):
        return {"replicas": describe(replicas)}
    places: list[Value] = [cast(Value, sorted({t.device.type for t in _tensors_of(each)})) for each in replicas]
    if any(device.type != "cpu" for device in devices):
        return {"count": len(replicas), "places": places}
    batches = list(zip(cast(list[Tensor], inputs["x"]), cast(list[Tensor], inputs["y"]), strict=True))
    outputs: list[Value] = [None] * len(batches)
    losses = []
    for number in reversed(range(min(len(batches), len(replicas)))):
        x, y = batches[number]
        output = replicas[number](x)
        outputs[number] = output.detach().clone()
        losses.append((number + 1) * loss_of(output, y))
    shared = _shared(replicas, own)
    total = torch.stack(losses).sum()
    if total.requires_grad:
        torch.autograd.backward(total)
    now = [*model.parameters(), *model.buffers()]
    return {
        "count": len(replicas),
        "places": places,
        "outputs": outputs,
        "gradients": gradients_of(model),
        "state": state_of(model),
        "shared": shared,
        "training": [all(part.training == model.training for part in each.modules()) for each in replicas],
        "same_tensors": len(now) == len(own) and all(a is b for a, b in zip(own, now, strict=True)),
    }


def _tensors_of(module: nn.Module) -> list[Tensor]:
    """Return a module's tensors, however they are kept."""
    found = []
    for part in module.modules():
        for kept in (part.__dict__, own_parameters(part), own_buffers(part)):
            found += [each for each in list(kept.values()) if isinstance(each, Tensor)]
    return found


def _shared(replicas: Any, own: list[Tensor]) -> list[Value]:
    """Return the replicas from 1 on that share memory with the module or with a replica before them."""
    taken = {tensor.data_ptr() for tensor in own}
    found: list[Value] = []
    for number, replica in enumerate(replicas):
        mine = {tensor.data_ptr() for tensor in _tensors_of(replica)}
        if number > 0 and mine & taken:
            found.append(number)
        taken |= mine
    return found
