"""What a rank runs of computing_twice: virtual ranks of which one may compute wrongly, and what each of them says."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.values import integer, tensors, text
from labkit.errors import RunError
from labkit.exercises.remote_calls.calling import raised_on_virtual_ranks


def drive(functions: Functions, inputs: Values) -> Values:
    """Let all ranks average gradients; return what each came to, which gradients it computed, and why the run failed.

    Inputs: gradients (each rank's), broken (the rank that computes wrongly, -1 for none), wrong ("own": the gradient it
    brings; "here": what it computes in the call; "both"), bit (which bit of the first element is wrong).
    """
    from labkit.virtual_world import virtual
    from labkit.worlds import run

    gradients, broken, wrong = tensors(inputs, "gradients"), integer(inputs, "broken"), text(inputs, "wrong")

    def result(rank: int, of: int, *, errs: bool) -> Tensor:
        return flipped(gradients[of], integer(inputs, "bit")) if rank == broken and errs else gradients[of].clone()

    def program() -> tuple[Any, list[Value]]:
        rank = dist.get_rank()
        computed: list[Value] = []

        def compute(of: int) -> Tensor:
            computed.append(of)
            return result(rank, of, errs=wrong != "own")

        return functions["checked_mean"](result(rank, rank, errs=wrong != "here"), compute), computed

    try:
        found = run(program, on=virtual(len(gradients), cuda=False), echo=False, timeout=30.0).results
    except RunError as error:
        raised = raised_on_virtual_ranks(error)
        if isinstance(raised, NotImplementedError):
            raise raised from None
        return {"ranks": [], "computed": [], "problem": str(raised).partition(": ")[2]}
    return {"ranks": [_row(each) for each, _ in found], "computed": [each for _, each in found], "problem": ""}


def flipped(gradient: Tensor, bit: int) -> Tensor:
    """Return a gradient of which one bit of the first element is wrong."""
    wrong = gradient.clone()
    wrong.view(torch.int64)[0] ^= 1 << bit
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
