"""Data parallelism as plain loops in one process: what replicas must bring, and the first wrong tensor in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks.case import Case, Value
from labkit.checks.compare import listing
from labkit.checks.on_ranks.hard_model import HardModel
from labkit.checks.on_ranks.model_state import gradients_of, loss_of, model_of, state_of
from labkit.checks.tensor_values import first_wrong, ratio_of
from labkit.checks.verdict import Verdict
from labkit.exercises.data_parallel.shares import balanced
from labkit.words import number

Gradients = Mapping[str, Tensor | None]
BUFFERS = ("norm.running_mean", "norm.running_var", "norm.num_batches_tracked")
"""Of the model in which replicas are told apart."""


def add_up(gradients: Sequence[Gradients]) -> dict[str, Tensor | None]:
    """Return the sum of gradients by name; one that nobody has stays None."""
    found: dict[str, Tensor | None] = {}
    for name in gradients[0]:
        there = [each[name] for each in gradients if each[name] is not None]
        found[name] = torch.stack(cast(list[Tensor], there)).sum(0) if there else None
    return found


def wrong_tensor(got: Value, wanted: Value, what: str) -> Verdict | None:
    """Return a verdict on the first tensor by name that is wrong, or None.

    Args:
        got: Tensors by name that came.
        wanted: Those that must come.
        what: What they are, in words that begin a sentence.
    """
    right = cast(dict[str, Value], wanted)
    name = first_wrong(got, right)
    if name is None:
        return None
    mine = got.get(name) if isinstance(got, dict) else None
    truth = right[name]
    if not isinstance(truth, Tensor):
        return Verdict(False, f"{what} of {name} should be None: nothing used it.")
    if not isinstance(mine, Tensor):
        return Verdict(False, f"{what} of {name} is None.", expected=f"{name}: {listing(truth)}", got="None")
    ratio = ratio_of(mine, truth) if mine.shape == truth.shape else None
    how = "is wrong" if ratio is None else f"is {number(round(ratio, 6))} times what it should be"
    return Verdict(
        False, f"{what} of {name} {how}.", expected=f"{name}: {listing(truth)}", got=f"{name}: {listing(mine)}"
    )


def steps_of(case: Case) -> list[dict[str, Any]]:
    """Return the steps of a case of mini_data_parallel."""
    return cast(list[dict[str, Any]], case.inputs[0]["steps"])


@lru_cache(maxsize=64)
def replay(case: Case) -> list[dict[str, Value]]:
    """Return what the driver must return for each step (see mini_data_parallel.driver)."""
    inputs = case.inputs[0]
    model = model_of(inputs)
    count = len(cast(list[str], inputs["devices"]))
    results: list[dict[str, Value]] = []
    for step in steps_of(case):
        sizes = balanced(len(step["x"]), count)
        copies = _copies(case, model, len(sizes), training=not step.get("eval"))
        pieces = torch.split(step["x"], sizes)
        outputs = [each(piece, spare=bool(step.get("spare"))) for each, piece in zip(copies, pieces, strict=True)]
        output = torch.cat(outputs)
        gradients: dict[str, Tensor | None] = dict.fromkeys(dict(model.named_parameters()))
        if not step.get("eval"):
            torch.autograd.backward(loss_of(output, step["y"]))
            gradients = add_up([cast(Gradients, gradients_of(each)) for each in copies])
        for ours, first in zip(model.buffers(), copies[0].buffers(), strict=True):
            ours.copy_(first)
        results.append(
            {
                "output": output.detach(),
                "tracked": not step.get("eval"),
                "sizes": cast(Value, sizes),
                "gradients": cast(Value, gradients),
                "state": state_of(model),
            }
        )
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                gradient = gradients[name]
                if gradient is not None:
                    parameter.sub_(cast(float, inputs["lr"]) * gradient)
    return results


def _copies(case: Case, model: HardModel, count: int, *, training: bool) -> list[HardModel]:
    found = []
    for _ in range(count):
        each = model_of(case.inputs[0])
        each.load_state_dict(model.state_dict())
        found.append(each.train(training))
    return found
