"""What a rank runs of scattered_gradients."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, cast

from torch import Tensor, nn

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.exercises.sharded_training.on_ranks import (
    OPTIONS,
    PlainAdamW,
    asker,
    backward,
    cutter,
    handed,
    keeping,
    kind_for,
    model_for,
    num_kept,
    scaled,
    steps_of,
    values_of,
)

BEHIND = ("remix", "head")
"""Layers whose gradients are complete when backward reaches the layer `fixed`."""


def drive(functions: Functions, inputs: Values) -> Values:
    """Train a hard model on this rank's own batches (scattered_gradients).

    Inputs: seed, model, groups, steps, optional marks. Marks on the wire in each step: when backward is at the output
    of `fixed`, when it is over, after the step. With marks, the first asks for a number that the gradient needs.
    """
    model = model_for(inputs)
    cut, held = cutter(), _Held(model)
    made: list[PlainAdamW] = []
    optimizer = functions["ScatteringOptimizer"](handed(model, inputs), keeping(made, kind_for(inputs)), **OPTIONS)
    model.fixed.register_forward_hook(held.hook(asker(inputs, cut)))
    after: list[Value] = []
    left: list[Value] = []
    stored: list[int] = []
    for step in steps_of(inputs):
        optimizer.zero_grad()
        backward(model, step)
        cut()
        left.append(sum(each.grad is not None for each in model.parameters()))
        optimizer.step()
        cut()
        after.append(values_of(model))
        stored.append(_num_stored(optimizer))
    seen: Values = {"left": left, "held": held.midway, "stored": [stored[0], stored[-1]]}
    return {"steps": after, "kept": num_kept(made), **seen}


def _num_stored(optimizer: Any) -> int:
    """Return how many entries the lists and dicts have that are an object's attributes."""
    kinds = (list, dict, set, tuple, deque)
    return sum(len(each) for each in vars(optimizer).values() if isinstance(each, kinds))


class _Held:
    """How many gradients of the last layers are still there when backward has passed them."""

    def __init__(self, model: nn.Module) -> None:
        self.behind = [each for name in BEHIND for each in getattr(model, name).parameters()]
        self.behind = [each for each in self.behind if each is not cast(Any, model).mix.weight]
        self.midway: list[int] = []

    def hook(self, ask: Callable[[], float]) -> Any:
        """Return a forward hook that looks when the output's gradient has come, asks for a number, and scales it."""

        def look(gradient: Tensor) -> Tensor:
            self.midway.append(sum(each.grad is not None for each in self.behind))
            return scaled(gradient, ask())

        def on_output(layer: nn.Module, given: object, output: Tensor) -> None:
            output.register_hook(look)  # type: ignore[no-untyped-call]

        return on_output
