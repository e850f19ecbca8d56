"""What a rank runs of mini_data_parallel."""

from __future__ import annotations

import threading
from typing import Any, cast

import torch
from torch import Tensor, nn

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.model_state import PlainSGD, gradients_of, loss_of, model_of, state_of
from labkit.exercises.data_parallel.nested_values import describe, tensors_in
from labkit.exercises.data_parallel.on_ranks import devices_of

_MEET_SECONDS = 5.0


class NestedModel(nn.Module):
    """A linear layer that is called with a dict, a tuple and keywords, and returns a dict with a loss in it."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.layer = nn.Linear(5, 3).double()
        with torch.no_grad():
            for parameter in self.layer.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))

    def forward(self, batch: dict[str, Any], offset: Tensor | None = None, *, scale: float = 1.0) -> dict[str, Any]:
        """Return {"out": (B, 3), "more": (a loss, what the batch is called)}."""
        out = torch.tanh(self.layer(batch["x"])) * scale
        if offset is not None:
            out = out + offset
        return {"out": out, "more": (out.square().mean(), batch["parts"][1])}


class _Meeting:
    """Where replicas wait for one another, so that only threads can run them."""

    def __init__(self) -> None:
        self.met = True
        self.barrier: threading.Barrier | None = None

    def expect(self, count: int) -> None:
        """Let that many replicas meet in the next step."""
        self.barrier = threading.Barrier(count)

    def meet(self) -> None:
        """Wait for the others, unless some have been waited for in vain."""
        if self.barrier is not None and self.met:
            try:
                self.barrier.wait(_MEET_SECONDS)
            except threading.BrokenBarrierError:
                self.met = False


def train_data_parallel(functions: Functions, inputs: Values) -> Values:
    """Wrap a hard model in MiniDataParallel and take some steps with it (mini_data_parallel).

    Inputs: seed, model (options), devices, lr, steps: a list of dicts with x, y, spare (a keyword), eval (an evaluation
    without gradients). What the first layer is given is written down by a hook; with `meet` the replicas wait there for
    one another.
    """
    model = model_of(inputs)
    sizes: list[int] = []
    meeting = _Meeting()

    def on_output(layer: nn.Module, given: tuple[Tensor], output: Tensor) -> None:
        sizes.append(len(given[0]))
        meeting.meet()

    model.stem.register_forward_hook(on_output)
    wrapped = functions["MiniDataParallel"](model, devices_of(inputs))
    optimizer = PlainSGD(model, cast(float, inputs["lr"]))
    steps: list[Value] = []
    for step in cast(list[dict[str, Any]], inputs["steps"]):
        optimizer.zero_grad()
        sizes.clear()
        if inputs.get("meet"):
            meeting.expect(min(len(step["x"]), len(devices_of(inputs))))
        keywords = {"spare": True} if step.get("spare") else {}
        wrapped.train(not step.get("eval"))
        with torch.set_grad_enabled(not step.get("eval")):
            output = wrapped(step["x"], **keywords)
        tracked = isinstance(output, Tensor) and output.requires_grad
        if tracked and output.device.type == "cpu" and not step.get("eval"):
            if output.shape == step["y"].shape:
                torch.autograd.backward(loss_of(output, step["y"]))
            else:
                torch.autograd.backward(output.sum())
        steps.append(
            {
                "output": describe(output),
                "tracked": tracked,
                "sizes": cast(Value, sorted(sizes, reverse=True)),
                "gradients": gradients_of(model),
                "state": state_of(model),
            }
        )
        optimizer.step()
    mine = {id(p) for p in model.parameters()}
    return {"steps": steps, "same_parameters": {id(p) for p in wrapped.parameters()} == mine, "met": meeting.met}


def call_nested(functions: Functions, inputs: Values) -> Values:
    """Call MiniDataParallel with nested arguments and keywords; go backward from all it returns (mini_data_parallel).

    Inputs: seed, devices, x, offset (or None), scale.
    """
    model = NestedModel(cast(int, inputs["seed"]))
    wrapped = functions["MiniDataParallel"](model, devices_of(inputs))
    batch = {"x": cast(Tensor, inputs["x"]).clone(), "parts": ([], "a name")}
    offset = inputs.get("offset")
    arguments = () if offset is None else (cast(Tensor, offset).clone(),)
    output = wrapped(batch, *arguments, scale=inputs["scale"])
    total = sum(t.sum() for t in tensors_in(output) if t.requires_grad)
    if isinstance(total, Tensor):
        torch.autograd.backward(total)
    return {"output": describe(output), "gradients": gradients_of(model)}


def drive(functions: Functions, inputs: Values) -> Values:
    """Return what one of the two drivers of mini_data_parallel returns."""
    return train_data_parallel(functions, inputs) if "steps" in inputs else call_nested(functions, inputs)
