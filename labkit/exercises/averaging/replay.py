"""What training on N ranks must bring, computed in one process: N copies of the model and plain loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks.case import Case, Value, Values
from labkit.checks.on_ranks.hard_model import HardModel, hard_model
from labkit.checks.on_ranks.model_state import gradients_of, loss_of, state_of
from labkit.checks.values import integer, listed, tensor
from labkit.exercises.averaging.on_ranks import count_up, drawn_marks, mark_layers, uses_spare

Gradients = Mapping[str, Tensor | None]


@dataclass(frozen=True)
class Replay:
    """What each rank must hold, and what it held before anything was averaged.

    Attributes:
        expected: For each rank, what its driver must return.
        own: For each step and rank, the rank's own gradients before the last averaging of that step.
    """

    expected: list[dict[str, Value]]
    own: list[list[Gradients]]


def models_of(case: Case) -> list[HardModel]:
    """Return rank 0's model, once for each rank."""
    first = case.inputs[0]
    options = cast(dict[str, Any], first.get("model", {}))
    return [hard_model(integer(first, "seed"), **options) for _ in range(case.world_size)]


def average(models: list[HardModel]) -> None:
    """Replace every gradient by the mean over the models; one that no model has stays None."""
    for parameters in zip(*(model.parameters() for model in models), strict=True):
        if all(parameter.grad is None for parameter in parameters):
            continue
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        mean = torch.stack(grads).sum(0) / len(models)
        for parameter in parameters:
            parameter.grad = mean.clone()


def replay(case: Case) -> Replay:
    """Return what a case of `train` must bring (see on_ranks.train)."""
    models = models_of(case)
    share_buffers = bool(case.about.get("buffers"))
    if case.inputs[0].get("exchange"):
        _scale_as_exchanged(models, case)
    results: list[dict[str, Value]] = [{"begun": state_of(model), "steps": []} for model in models]
    own: list[list[Gradients]] = []
    for number in range(len(listed(case.inputs[0], "steps"))):
        steps = [listed(inputs, "steps")[number] for inputs in case.inputs]
        outputs, before = _one_step(models, steps, share_buffers)
        own.append(before)
        for result, model, output in zip(results, models, outputs, strict=True):
            taken: dict[str, Value] = {
                "outputs": output, "gradients": gradients_of(model), "state": state_of(model),
            }  # fmt: skip
            listed(result, "steps").append(taken)
        for model in models:
            _descend(model, cast(float, case.inputs[0]["lr"]))
    for result, model, inputs in zip(results, models, case.inputs, strict=True):
        result["end"] = state_of(model)
        if "evaluate" in inputs:
            with torch.no_grad():
                result["evaluated"] = {"output": model.eval()(tensor(inputs, "evaluate")).clone()}
    return Replay(results, own)


def _scale_as_exchanged(models: list[HardModel], case: Case) -> None:
    """Let gradients of every layer's output be scaled as the ranks' exchanges do it."""
    for model in models:
        factors = iter(1 + torch.stack([drawn_marks(inputs) for inputs in case.inputs]).sum(0))
        mark_layers(model, lambda gradient, factors=factors: gradient * next(factors))  # type: ignore[misc]


def expected(case: Case) -> list[Values]:
    """Return what each rank's driver must return (the oracle)."""
    return list(replay(case).expected)


def _one_step(
    models: list[HardModel], steps: list[dict[str, Any]], share_buffers: bool
) -> tuple[list[list[Tensor]], list[Gradients]]:
    outputs: list[list[Tensor]] = [[] for _ in models]
    before: list[Gradients] = [{} for _ in models]
    if not steps[0].get("keep"):
        for model in models:
            model.zero_grad()
    for model, step in zip(models, steps, strict=True):
        count_up(model, step)
    for number in range(len(steps[0]["x"])):
        if share_buffers:
            for model in models[1:]:
                for ours, root in zip(model.buffers(), models[0].buffers(), strict=True):
                    ours.copy_(root)
        for rank, (model, step) in enumerate(zip(models, steps, strict=True)):
            output = model(step["x"][number], spare=uses_spare(step, number))
            target = output.detach() if step.get("perfect") else step["y"][number]
            if rank not in step.get("idle", ()):
                torch.autograd.backward(loss_of(output, target))
            outputs[rank].append(output.detach().clone())
        if number >= int(steps[0].get("quiet", 0)):
            before = [cast(Gradients, gradients_of(model)) for model in models]
            average(models)
    return outputs, before


@torch.no_grad()
def _descend(model: HardModel, lr: float) -> None:
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.sub_(lr * parameter.grad)
