"""What the drivers of this lesson share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.model_state import PlainSGD, gradients_of, loss_of, model_of, state_of
from labkit.checks.values import integer, listed, tensor, text
from labkit.torch_port.generators import generator

Cut = Callable[[], object]


LAYERS = ("stem", "norm", "mix", "fixed", "remix", "head")
"""Layers of the hard model that mark their gradient, in the order of the forward pass (every rank uses them)."""


def cutter() -> Cut:
    """Return what marks the wire: a barrier in a group of its own, whose order the learner's calls do not depend on."""
    group = dist.new_group()
    return lambda: dist.barrier(group)


def mark_layers(model: nn.Module, cut: Callable[[Tensor], object]) -> None:
    """Let every layer's output call `cut` with its gradient when that is there; what comes back takes its place."""

    def on_output(layer: nn.Module, given: object, output: Tensor) -> None:
        if output.requires_grad:
            output.register_hook(cut)  # type: ignore[no-untyped-call]

    for name in LAYERS:
        getattr(model, name).register_forward_hook(on_output)


def exchange(inputs: Values) -> Callable[[Tensor], Tensor]:
    """Return what scales a gradient by numbers of all ranks, which arrive in an exchange.

    It marks the wire as a barrier does, and cannot be held back: the rest of backward needs what comes.
    """
    group, drawn = dist.new_group(), iter(drawn_marks(inputs))

    def scale(gradient: Tensor) -> Tensor:
        mine = next(drawn).repeat(dist.get_world_size())
        came = torch.empty_like(mine)
        dist.all_to_all_single(came, mine, group=group)
        return gradient * (1 + came.sum())

    return scale


def drawn_marks(inputs: Values) -> Tensor:
    """Return the numbers that a rank exchanges, one for each layer of each backward pass."""
    num_passes = sum(len(step["x"]) for step in listed(inputs, "steps"))
    draw = generator(integer(inputs, "seed"), "marks")
    return torch.rand(num_passes * len(LAYERS), generator=draw, dtype=torch.float64) / 8


def call_on_model(functions: Functions, inputs: Values) -> Values:
    """Call average_gradients on this rank's model, after a backward of its own."""
    model = model_of(inputs)
    tensors = [*model.parameters(), *model.buffers()]
    if "x" in inputs:
        extra = cast(bool, inputs.get("spare", False))
        torch.autograd.backward(loss_of(model(tensor(inputs, "x"), spare=extra), tensor(inputs, "y")))
    (function,) = functions.values()
    cut, before = cutter(), torch.get_deterministic_debug_mode()
    cut()
    torch.set_deterministic_debug_mode("warn")  # then torch.empty_like holds NaN and never zeros by chance
    try:
        function(model)
    finally:
        torch.set_deterministic_debug_mode(before)
    cut()
    same = all(a is b for a, b in zip(tensors, [*model.parameters(), *model.buffers()], strict=True))
    return {"state": state_of(model), "gradients": gradients_of(model), "same_tensors": same}


def train(functions: Functions, inputs: Values) -> Values:
    """Wrap this rank's model and take some steps with it (overlapped_ddp, bucketed_ddp, accumulating_ddp, mini_ddp).

    Inputs: seed, model (options), wrapper (name), cap (MB, or None for no argument), lr, steps: a list of dicts with
    x and y (one tensor for each backward of the step), quiet (how many of them run inside no_sync), ahead (whether
    their forward runs before it), spare (whether
    this rank uses the spare layer), spare_passes (in how many of the first passes; without it in all), stumble
    (whether an error leaves a no_sync before), counted (by how much this rank's whole-numbered buffers have grown
    before the step), keep (gradients are not cleared before the step), perfect (targets are what the model says: every
    gradient is zero), idle (ranks that make no backward; not with exchange); optional exchange: layers exchange
    numbers during backward; optional evaluate: after the last step the model is evaluated on this batch, gradients
    still on, as they need not be off.
    """
    model = model_of(inputs)
    cut = cutter()
    mark_layers(model, exchange(inputs) if inputs.get("exchange") else lambda gradient: cut())
    make = functions[text(inputs, "wrapper")]
    cap = inputs.get("cap")
    cut()
    wrapped = make(model) if cap is None else make(model, cap)
    cut()
    begun = state_of(model)
    optimizer = PlainSGD(model, cast(float, inputs["lr"]))
    steps: list[Value] = []
    for step in listed(inputs, "steps"):
        if not step.get("keep"):
            optimizer.zero_grad()
        count_up(model, step)
        outputs = _backward_passes(wrapped, step, cut)
        wrapped.finish_gradient_synchronization()
        cut()
        steps.append({"outputs": outputs, "gradients": gradients_of(model), "state": state_of(model)})
        optimizer.step()
    result: Values = {"begun": begun, "steps": steps, "end": state_of(model)}
    if "evaluate" in inputs:
        wrapped.eval()
        evaluated = wrapped(tensor(inputs, "evaluate"))
        cut()
        result = {**result, "evaluated": {"output": evaluated.detach().clone()}}
    return result


def uses_spare(step: dict[str, Any], number: int) -> bool:
    """Return whether a rank uses its spare layer in pass `number` of a step."""
    return bool(step.get("spare")) and number < int(step.get("spare_passes", number + 1))


@torch.no_grad()
def count_up(model: nn.Module, step: dict[str, Any]) -> None:
    """Let buffers of whole numbers, which count batches, be as if a rank had seen more of them than the others."""
    for buffer in model.buffers():
        if not buffer.is_floating_point():
            buffer += int(step.get("counted", 0))


def _backward_passes(wrapped: Any, step: dict[str, Any], cut: Cut) -> list[Value]:
    if step.get("stumble"):
        try:
            with wrapped.no_sync():
                raise KeyError("the learner's loader failed")
        except KeyError:
            pass
        else:
            raise RuntimeError("The exception that was raised inside no_sync did not come out of no_sync.")
    outputs: list[Value] = []
    quiet = int(step.get("quiet", 0))
    targets = [None] * len(step["x"]) if step.get("perfect") else step["y"]
    for number, (x, y) in enumerate(zip(step["x"], targets, strict=True)):
        options = {"spare": True} if uses_spare(step, number) else {}
        if number < quiet and step.get("ahead"):
            output = _forward(wrapped, x, options, cut)
            with wrapped.no_sync():
                outputs.append(_backward(output, y, cut))
        elif number < quiet:
            with wrapped.no_sync():
                outputs.append(_forward_and_backward(wrapped, x, y, options, cut))
        else:
            outputs.append(_forward_and_backward(wrapped, x, y, options, cut, dist.get_rank() in step.get("idle", ())))
            if number + 1 < len(step["x"]):
                wrapped.finish_gradient_synchronization()
                cut()
    return outputs


def _forward_and_backward(
    wrapped: Any, x: Tensor, y: Tensor | None, options: dict[str, bool], cut: Cut, idle: bool = False
) -> Tensor:
    return _backward(_forward(wrapped, x, options, cut), y, cut, idle)


def _forward(wrapped: Any, x: Tensor, options: dict[str, bool], cut: Cut) -> Tensor:
    output = wrapped(x, **options)
    cut()
    return cast(Tensor, output)


def _backward(output: Tensor, y: Tensor | None, cut: Cut, idle: bool = False) -> Tensor:
    if idle:
        for _ in LAYERS:  # the others' layers mark the wire
            cut()
    else:
        torch.autograd.backward(loss_of(output, output.detach() if y is None else y))
    cut()
    return output.detach().clone()
