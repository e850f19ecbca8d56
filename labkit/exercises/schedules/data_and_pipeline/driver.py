"""What a rank runs of data_and_pipeline: a stand-in for a pipeline, whose stages' gradients were drawn."""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.other_kind import kind_for, named_for
from labkit.checks.values import integer, integers, record, tensor


class Drawn(nn.Module):
    """A stage's parameters, by name: some frozen, one never used."""

    def __init__(self, inputs: Values) -> None:
        nn.Module.__init__(self)  # it may be of another class: see kind_for
        for name, start in record(inputs, "parameters").items():
            frozen = name == "frozen"
            self.register_parameter(name, nn.Parameter(cast(Tensor, start).clone(), requires_grad=not frozen))


def drive(functions: Functions, inputs: Values) -> Values:
    """Call hybrid_step on a mesh of pipelines. Inputs: mesh, [pipelines, stages]; parameters, gradients, scale, ..."""
    shape = tuple(integers(inputs, "mesh"))
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("data", "pipe"))
    module, runs = kind_for(Drawn, inputs)(inputs), []
    for name, gradient in record(inputs, "before").items():  # of the step before: run_step overwrites it
        module.get_parameter(name).grad = cast(Tensor, gradient).clone()

    def run_step(group: Any) -> Tensor | None:
        scale = tensor(inputs, "scale").clone()
        dist.broadcast(scale, group=group, group_src=0)  # what the first stage sends goes into every gradient
        runs.append(dist.get_world_size(group))
        for name, gradient in record(inputs, "gradients").items():
            module.get_parameter(name).grad = cast(Tensor, gradient) * scale
        return tensor(inputs, "loss") * scale if "loss" in inputs else None

    loss = functions["hybrid_step"](mesh, named_for(run_step, inputs), module, integer(inputs, "num_samples"))
    return {
        "grads": {name: parameter.grad for name, parameter in module.named_parameters()},
        "moved": any(
            not torch.equal(parameter.detach(), cast(Tensor, record(inputs, "parameters")[name]))
            for name, parameter in module.named_parameters()
        ),
        "loss": _number(loss) if isinstance(loss, Tensor) else None,
        "returned": type(loss).__name__,
        "runs": len(runs),
    }


def _number(loss: Tensor) -> Tensor:
    """Return a copy of a loss; one number has one dimension here, whether it came with any or without."""
    return loss.detach().clone().reshape(-1) if loss.numel() == 1 else loss.detach().clone()
