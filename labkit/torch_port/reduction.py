"""What reductions yield: rank after rank, in the tensors' own dtype."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import torch
import torch.distributed as dist

_FUNCTIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "SUM": torch.add,
    "AVG": torch.add,
    "PRODUCT": torch.mul,
    "MIN": torch.fmin,  # what is not a number loses, as where two numbers are compared
    "MAX": torch.fmax,
    "BAND": torch.bitwise_and,
    "BOR": torch.bitwise_or,
    "BXOR": torch.bitwise_xor,
}

_SCALED = "PREMUL_SUM"
"""NCCL's sum of what is multiplied by a number first, as FSDP2 reduces with a divide factor."""


def op_name(options: Any, backend: str) -> str:
    """Return "SUM", "AVG", ... from options or an op; `backend` says whose words an error is.

    Raises:
        RuntimeError: If no port has such a reduction.
    """
    op = getattr(options, "reduceOp", options)
    if op is None:
        return "SUM"
    if op == dist.ReduceOp.PREMUL_SUM:
        _, factor = op.__getstate__()
        return f"{_SCALED}({float(factor)!r})"
    for name in _FUNCTIONS:
        if op == getattr(dist.ReduceOp, name):
            return name
    raise RuntimeError(f'The backend "{backend}" does not reduce with {op}; it knows {", ".join(_FUNCTIONS)}.')


def reduce_tensors(tensors: Sequence[torch.Tensor], op: str) -> torch.Tensor:
    """Return the reduction of one tensor per rank, in order of ranks, as a new tensor."""
    if op.startswith(_SCALED):
        factor = float(op.removeprefix(_SCALED)[1:-1])
        return reduce_tensors([tensor.detach() * factor for tensor in tensors], "SUM")
    first = tensors[0].detach()
    if op == "AVG" and first.dtype is torch.bool:
        raise RuntimeError("booleans have no mean; reduce with BAND, BOR or MAX")
    if len(tensors) == 1:
        return first.clone(memory_format=torch.contiguous_format)
    total = reduce(_FUNCTIONS[op], (tensor.detach() for tensor in tensors))
    if op == "AVG":
        total = total / len(tensors) if total.is_floating_point() or total.is_complex() else total // len(tensors)
    return total
