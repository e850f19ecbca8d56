"""The ring that par is measured with: one layer's attention, forward and backward, on sixteen virtual ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist

from labkit.checks.par import Par, Score

_HEADS, _EACH, _WIDTH = 2, 128, 64


def one_layer(functions: Mapping[str, Callable[..., Any]]) -> None:
    """Run forward and backward on 128 tokens of each rank, two heads of 64, float32."""
    places = dist.get_rank() * _EACH + torch.arange(_EACH)
    gradient, q, k, v = (torch.ones(1, _HEADS, _EACH, _WIDTH) for _ in range(4))
    with torch.no_grad():
        out, logsumexp = functions["ring_forward"](q, k, v, places, None)
        functions["ring_backward"](gradient, q, k, v, places, out, logsumexp, None)


PAR = Par(
    what="attention over 2,048 tokens, 128 on each rank, forward and backward",
    where="16 x H100, NVLink 4",
    program=one_layer,
    world_size=16,
    score=Score(time_ns=3_417_285, bytes_sent=6_192_128, peak_bytes=1_331_200),
    most_memory=1.5,
    advice="Memory must not grow with the number of ranks: hold the block that came last and the one that is coming, "
    "and scores of one block at a time.",
)
