"""The ring that par is measured with: one layer's attention on eight virtual ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist

from labkit.checks.par import Par, Score

_HEADS, _EACH, _WIDTH = 2, 128, 64


def one_layer(functions: Mapping[str, Callable[..., Any]]) -> None:
    """Compute the attention of 128 tokens of each rank, two heads of 64, float32."""
    places = dist.get_rank() * _EACH + torch.arange(_EACH)
    q, k, v = (torch.ones(1, _HEADS, _EACH, _WIDTH) for _ in range(3))
    with torch.no_grad():
        functions["ring_attention"](q, k, v, places)


PAR = Par(
    what="attention over 1,024 tokens, 128 on each rank",
    where="8 x H100, NVLink 4",
    program=one_layer,
    world_size=8,
    score=Score(time_ns=733_699, bytes_sent=924_672, peak_bytes=924_672),
    most_memory=1.6,
    advice="Memory must not grow with the number of ranks: hold the keys and values that came last and those that are "
    "coming, scores of one lot at a time, and one sum of each kind.",
)
