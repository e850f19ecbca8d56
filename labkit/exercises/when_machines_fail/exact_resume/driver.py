"""What a rank runs of exact_resume: a run that goes on, and one that is resumed in its place."""

from __future__ import annotations

import io
import random
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.values import flag, integer
from labkit.failures.training import Training


def drive(functions: Functions, inputs: Values) -> Values:
    """Train, take the state, train on; then write the state, read it into a new run, and train that on.

    Where there are two ranks, rank 0 does the first and rank 1, which knows nothing of it, the second.

    Inputs: seed (of the run, or of the new one where this is rank 1), before (steps until the state is taken; -1 on
    rank 1), after (steps that both runs do then), apart (whether there are two ranks).
    """
    seed, after, apart = integer(inputs, "seed"), integer(inputs, "after"), flag(inputs, "apart")
    if integer(inputs, "before") < 0:
        return {**_goes_on(functions, seed, after, _received()), "changed": ""}
    run = Training(seed)
    for _ in range(integer(inputs, "before")):
        run.train_step()
    before = _parts(run)
    state = functions["state_of"](run)
    changed = ", ".join(name for name, part in _parts(run).items() if not is_same(part, before[name]))
    run.seen.clear()
    for _ in range(after):
        run.train_step()  # the state is still being written
    file = io.BytesIO()
    torch.save(state, file)
    if apart:
        _send(file.getvalue())
        return {**_at_the_end(run), "changed": changed}
    whole, came = _at_the_end(run), _goes_on(functions, seed + 1, after, file.getvalue())
    return {**came, "changed": changed, "identical": all(is_same(whole[key], came[key]) for key in whole)}


def _parts(run: Training) -> dict[str, Any]:
    """Return copies of what a look at a run must leave alone, by name."""
    return {
        "torch's random numbers": torch.get_rng_state(), "Python's random numbers": random.getstate(),
        "the sampler's position": run.sampler.position, "the sampler's order": run.sampler.order.clone(),
        "the sampler's generator": run.sampler.generator.get_state(), "run.step": run.step,
        "model.training": run.model.training,
        "the weights": torch.cat([each.detach().flatten() for each in run.model.parameters()]),
    }  # fmt: skip


def _goes_on(functions: Functions, seed: int, after: int, state: bytes) -> Values:
    """Return what the steps of a new run are like that takes up a state."""
    resumed = Training(seed)
    functions["restore"](resumed, torch.load(io.BytesIO(state)))
    resumed.seen.clear()
    for _ in range(after):
        resumed.train_step()
    return _at_the_end(resumed)


def _at_the_end(run: Training) -> dict[str, Value]:
    random.seed(0)
    torch.manual_seed(0)
    return summary(run)


def _send(data: bytes) -> None:
    dist.send(torch.tensor([len(data)]), 1)
    dist.send(torch.frombuffer(bytearray(data), dtype=torch.uint8), 1)


def _received() -> bytes:
    size = torch.zeros(1, dtype=torch.int64)
    dist.recv(size, 0)
    data = torch.zeros(int(size), dtype=torch.uint8)
    dist.recv(data, 0)
    return bytes(data.tolist())


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


def is_same(one: Any, other: Any) -> bool:
    """Return whether two parts of a summary are the same to the bit."""
    return bool(torch.equal(one, other)) if isinstance(one, Tensor) else bool(one == other)
