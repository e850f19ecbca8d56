"""Drivers of lesson 03: train the torture model with the learner's wrapper, return what the ranks hold afterwards.

Barriers cut the wire into stretches that a judge can read: one before and after each call of the learner's code, and
one in backward whenever a layer's output has its gradient, that is before the gradients of that layer's parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.torture import TortureModel

Cut = Callable[[], object]

LAYERS = ("stem", "norm", "mix", "fixed", "remix", "head")
"""Layers of the torture model that mark their gradient, in the order of the forward pass (every rank uses them)."""


def model_of(inputs: Values) -> TortureModel:
    """Return this rank's model; `seed` may differ between ranks."""
    options = cast(dict[str, bool], inputs.get("model", {}))
    return TortureModel(cast(int, inputs["seed"]), **options)


def cutter() -> Cut:
    """Return what marks the wire: a barrier in a group of its own, whose order the learner's calls do not depend on."""
    group = dist.new_group()
    return lambda: dist.barrier(group)


def mark_layers(model: TortureModel, cut: Cut) -> None:
    """Let every layer's output call `cut` when its gradient is there."""

    def on_output(layer: nn.Module, given: object, output: Tensor) -> None:
        if output.requires_grad:
            output.register_hook(lambda gradient: cut())  # type: ignore[no-untyped-call]

    for name in LAYERS:
        getattr(model, name).register_forward_hook(on_output)


def state_of(model: nn.Module) -> dict[str, Value]:
    """Return parameters and buffers by name."""
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {name: tensor.detach().clone() for name, tensor in named.items()}


def gradients_of(model: nn.Module) -> dict[str, Value]:
    """Return the gradient of each parameter by name, None where there is none."""
    return {name: None if p.grad is None else p.grad.detach().clone() for name, p in model.named_parameters()}


def loss_of(output: Tensor, target: Tensor) -> Tensor:
    """Return the mean squared error."""
    return nn.functional.mse_loss(output, target)


class PlainSGD:
    """Stochastic gradient descent; torch.optim would first load its compiler, seconds in each fresh rank."""

    def __init__(self, model: nn.Module, lr: float) -> None:
        self.param_groups = [{"params": [p for p in model.parameters() if p.requires_grad], "lr": lr}]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, or fill them with zeros."""
        for group in self.param_groups:
            for parameter in cast(list[nn.Parameter], group["params"]):
                if parameter.grad is not None:
                    parameter.grad = None if set_to_none else torch.zeros_like(parameter)

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in cast(list[nn.Parameter], group["params"]):
                if parameter.grad is not None:
                    parameter.sub_(cast(float, group["lr"]) * parameter.grad)


def call_on_model(functions: Functions, inputs: Values) -> Values:
    """Call broadcast_module on this rank's model, or average_gradients after a backward of its own."""
    model = model_of(inputs)
    tensors = [*model.parameters(), *model.buffers()]
    if "x" in inputs:
        extra = cast(bool, inputs.get("spare", False))
        torch.autograd.backward(loss_of(model(cast(Tensor, inputs["x"]), spare=extra), cast(Tensor, inputs["y"])))
    (function,) = functions.values()
    cut = cutter()
    cut()
    function(model)
    cut()
    same = all(a is b for a, b in zip(tensors, [*model.parameters(), *model.buffers()], strict=True))
    return {"state": state_of(model), "gradients": gradients_of(model), "same_tensors": same}


def train(functions: Functions, inputs: Values) -> Values:
    """Wrap this rank's model and take some steps with it (overlapped_ddp, bucketed_ddp, accumulating_ddp, mini_ddp).

    Inputs: seed, model (options), wrapper (name), cap (MB, or None for no argument), lr, steps: a list of dicts with
    x and y (one tensor for each backward of the step), quiet (how many of them run inside no_sync), spare (whether
    this rank uses the spare layer), stumble (whether an error leaves a no_sync before), keep (gradients are not
    cleared before the step).
    """
    model = model_of(inputs)
    cut = cutter()
    mark_layers(model, cut)
    make = functions[cast(str, inputs["wrapper"])]
    cap = inputs.get("cap")
    cut()
    wrapped = make(model) if cap is None else make(model, cap)
    cut()
    begun = state_of(model)
    optimizer = PlainSGD(model, cast(float, inputs["lr"]))
    steps: list[Value] = []
    for step in cast(list[dict[str, Any]], inputs["steps"]):
        if not step.get("keep"):
            optimizer.zero_grad()
        outputs = _backward_passes(wrapped, step, cut)
        wrapped.finish_gradient_synchronization()
        cut()
        steps.append({"outputs": outputs, "gradients": gradients_of(model), "state": state_of(model)})
        optimizer.step()
    return {"begun": begun, "steps": steps, "end": state_of(model)}


def _backward_passes(wrapped: Any, step: dict[str, Any], cut: Cut) -> list[Value]:
    options = {"spare": True} if step.get("spare") else {}
    if step.get("stumble"):
        try:
            with wrapped.no_sync():
                raise KeyError("the learner's loader failed")
        except KeyError:
            pass
    outputs: list[Value] = []
    quiet = int(step.get("quiet", 0))
    for number, (x, y) in enumerate(zip(step["x"], step["y"], strict=True)):
        if number < quiet:
            with wrapped.no_sync():
                outputs.append(_forward_and_backward(wrapped, x, y, options, cut))
        else:
            outputs.append(_forward_and_backward(wrapped, x, y, options, cut))
            if number + 1 < len(step["x"]):
                wrapped.finish_gradient_synchronization()
                cut()
    return outputs


def _forward_and_backward(wrapped: Any, x: Tensor, y: Tensor, options: dict[str, bool], cut: Cut) -> Tensor:
    output = wrapped(x, **options)
    cut()
    torch.autograd.backward(loss_of(output, y))
    cut()
    return cast(Tensor, output.detach().clone())


def call_bucket_plan(functions: Functions, inputs: Values) -> Values:
    """Call bucket_plan with each list of sizes and cap (bucket_plan)."""
    calls = cast(list[dict[str, Any]], inputs["calls"])
    return {"plans": [_plan_data(functions["bucket_plan"](list(c["sizes"]), c["cap"])) for c in calls]}


def _plan_data(plan: Any) -> Value:
    try:
        return [[index if type(index) is int else f"{index!r:.40}" for index in bucket] for bucket in plan]
    except TypeError:
        return f"{plan!r:.60}"


def draw_samples(functions: Functions, inputs: Values) -> Values:
    """Build the sampler of every rank and list what it yields in each epoch; more than it may is cut off.

    Inputs: samplers: dicts with size, world_size, shuffle, seed, drop_last, epochs (None: set_epoch is not called).
    """
    found: list[Value] = []
    for about in cast(list[dict[str, Any]], inputs["samplers"]):
        options = {name: about[name] for name in ("shuffle", "seed", "drop_last") if name in about}
        of_ranks: list[Value] = []
        for rank in range(about["world_size"]):
            sampler = functions["ShardedSampler"](about["size"], about["world_size"], rank, **options)
            of_ranks.append([_epoch(sampler, epoch, about["size"]) for epoch in about["epochs"]])
        found.append(of_ranks)
    return {"drawn": found}


def most_indices(size: int) -> int:
    """Return after how many indices a sampler of that many samples is cut off, more than any right one yields."""
    return 2 * size + 8


def _epoch(sampler: Any, epoch: int | None, size: int) -> Value:
    if epoch is not None:
        sampler.set_epoch(epoch)
    indices = [int(index) for index in islice(iter(sampler), most_indices(size))]
    return {"length": len(sampler), "indices": cast(Value, indices)}


def call_functions(functions: Functions, inputs: Values) -> Values:
    """Call named functions with plain arguments; return their values in order (overlap_gain)."""
    calls = cast(list[dict[str, Any]], inputs["calls"])
    return {"values": [functions[call["function"]](*call["args"]) for call in calls]}


def train_until_all_are_out(functions: Functions, inputs: Values) -> Values:
    """Train with lists of batches of unequal length (uneven_inputs).

    Inputs: seed, model, cap, lr, x and y (one tensor for each batch).
    """
    model = model_of(inputs)
    wrapped = functions["MiniDDP"](model, inputs["cap"])
    optimizer = PlainSGD(model, cast(float, inputs["lr"]))
    batches = list(zip(cast(list[Tensor], inputs["x"]), cast(list[Tensor], inputs["y"]), strict=True))
    loss: Callable[[Tensor, Tensor], Tensor] = loss_of
    cut = cutter()
    cut()
    steps = functions["train_uneven"](wrapped, batches, loss, optimizer)
    cut()
    return {"steps": steps if type(steps) is int else f"{steps!r:.60}", "end": state_of(model)}
