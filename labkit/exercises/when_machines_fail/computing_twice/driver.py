"""What a rank runs of computing_twice: virtual ranks of which one may compute wrongly, and what each of them says."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.values import flag, integer, tensors, text
from labkit.errors import RunError
from labkit.exercises.remote_calls.calling import raised_on_virtual_ranks
from labkit.simulator.state import outside

NUM_ELEMENTS = 5
"""Of a gradient."""


def drive(functions: Functions, inputs: Values) -> Values:
    """Let all ranks average gradients; return what each came to, which gradients it computed, and why the run failed.

    Where two ranks take part, rank 0 runs all virtual ranks and rank 1 computes for them: rank 0 is not told who is
    broken, and each gradient that is computed again is a message.

    Inputs: gradients (each rank's; on rank 0 of two, what each brings), apart (whether two ranks take part); where
    gradients are computed, broken (the rank that computes wrongly, -1 for none), wrong ("own": the gradient it brings;
    "here": what it computes in the call; "both"), bit (which bit of the first element is wrong); and brought (what each
    brings) where all is done in one process.
    """
    from labkit.virtual_world import virtual
    from labkit.worlds import run

    apart = flag(inputs, "apart")
    if apart and dist.get_rank() == 1:
        return {"served": _serve(inputs)}
    brought = tensors(inputs, "gradients" if apart else "brought")
    again = _asked if apart else partial(computed_on, inputs)

    def program() -> tuple[Any, list[Value]]:
        rank = dist.get_rank()
        computed: list[Value] = []

        def compute(of: int) -> Tensor:
            computed.append(of)
            return again(rank, of)

        return functions["checked_mean"](brought[rank].clone(), compute), computed

    try:
        found = run(program, on=virtual(len(brought), cuda=False), echo=False, timeout=30.0).results
    except RunError as error:
        raised = raised_on_virtual_ranks(error)
        if isinstance(raised, NotImplementedError):
            raise raised from None
        return {"ranks": [], "computed": [], "problem": str(raised).partition(": ")[2]}
    finally:
        if apart:
            dist.send(torch.tensor([_END, _END]), 1)
    return {"ranks": [_row(each) for each, _ in found], "computed": [each for _, each in found], "problem": ""}


def computed_on(inputs: Values, rank: int, of: int) -> Tensor:
    """Return what a rank computes for the batch of another one in the call."""
    gradient = tensors(inputs, "gradients")[of]
    wrong = rank == integer(inputs, "broken") and text(inputs, "wrong") != "own"
    return flipped(gradient, integer(inputs, "bit")) if wrong else gradient.clone()


_END = -1
_one_by_one = threading.Lock()


def _asked(rank: int, of: int) -> Tensor:
    """Return what rank 1 computes for a virtual rank."""
    came = torch.zeros(NUM_ELEMENTS, dtype=torch.float64)
    with outside(), _one_by_one:
        dist.send(torch.tensor([rank, int(of)]), 1)
        dist.recv(came, 1)
    return came


def _serve(inputs: Values) -> int:
    """Compute for virtual ranks until they have their means; return how often."""
    count, asked = 0, torch.zeros(2, dtype=torch.int64)
    while True:
        dist.recv(asked, 0)
        rank, of = asked.tolist()
        if rank == _END:
            return count
        dist.send(computed_on(inputs, rank, of), 0)
        count += 1


def flipped(gradient: Tensor, bit: int) -> Tensor:
    """Return a gradient of which one bit is wrong, of the last element or one before it, as the bit says."""
    wrong = gradient.clone()
    wrong.view(torch.int64)[-1 - bit % len(wrong)] ^= 1 << bit
    return wrong


def _row(found: Any) -> Value:
    """Return what a rank returned: mean and rank, -1 for None; in words what is no such pair."""
    if isinstance(found, tuple | list) and len(found) == 2:
        mean, who = found
        if isinstance(who, Tensor) and who.numel() == 1:
            who = who.item()
        if isinstance(mean, Tensor) and (who is None or type(who) is int):
            return {"mean": mean.detach(), "broken": -1 if who is None else who}
    return f"{found!r:.80}"
