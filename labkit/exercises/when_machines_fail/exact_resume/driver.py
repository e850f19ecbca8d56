"""What a rank runs of exact_resume: a run that goes on, and one that is resumed in its place."""

from __future__ import annotations

import io
import random
from typing import Any

import torch
from torch import Tensor

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.values import integer
from labkit.failures.training import Training


def drive(functions: Functions, inputs: Values) -> Values:
    """Train, take the state, train on; then write the state, read it into a new run, and train that on.

    Inputs: seed, before (steps until the state is taken), after (steps that both runs do then).
    """
    seed, after = integer(inputs, "seed"), integer(inputs, "after")
    run = Training(seed)
    for _ in range(integer(inputs, "before")):
        run.train_step()
    state = functions["state_of"](run)
    run.seen.clear()
    for _ in range(after):
        run.train_step()  # the state is still being written
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    resumed = Training(seed + 1)
    functions["restore"](resumed, torch.load(file))
    resumed.seen.clear()
    for _ in range(after):
        resumed.train_step()
    random.seed(0)
    torch.manual_seed(0)
    whole, came = summary(run), summary(resumed)
    return {**came, "identical": all(_same(whole[key], came[key]) for key in whole)}


def summary(run: Any) -> dict[str, Value]:
    """Return what the steps of a run were like, and its weights."""
    found: dict[str, Value] = {
        name: [each[key] for each in run.seen]
        for name, key in (
            ("samples", "samples"),
            ("rates", "rate"),
            ("scales", "scale"),
            ("noise", "noise"),
            ("moments", "moment"),
        )
    }
    found["losses"] = torch.tensor([each["loss"] for each in run.seen], dtype=torch.float64)
    found["weights"] = torch.cat([each.detach().flatten() for each in run.model.parameters()])
    found["step"] = run.step
    return found


def _same(one: Any, other: Any) -> bool:
    return bool(torch.equal(one, other)) if isinstance(one, Tensor) else bool(one == other)
