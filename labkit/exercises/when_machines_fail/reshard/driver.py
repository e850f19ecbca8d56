"""What a rank runs of reshard: each rank of a new world asks for its part, and what it reads is counted."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.values import integer, listed


def drive(functions: Functions, inputs: Values) -> Values:
    """Load onto num_ranks what saved_ranks have written.

    Inputs: sizes ((name, elements) pairs), wholes (each tensor, flat), saved_ranks, num_ranks.
    """
    saved_ranks, num_ranks = integer(inputs, "saved_ranks"), integer(inputs, "num_ranks")
    sizes = {str(name): int(size) for name, size in listed(inputs, "sizes")}
    shards = {
        name: padded(whole, saved_ranks).view(saved_ranks, -1)
        for name, whole in zip(sizes, listed(inputs, "wholes"), strict=True)
    }
    parts: list[Value] = []
    read: list[Value] = []
    outside: list[Value] = []
    for rank in range(num_ranks):
        spans: list[tuple[str, int, int, int]] = []

        def reads(saved_rank: int, name: str, begin: int, end: int, spans: Any = spans) -> Tensor:
            if not 0 <= saved_rank < saved_ranks:
                raise IndexError(f"{saved_rank} is no saved rank; they are 0 to {saved_ranks - 1}")
            spans.append((name, saved_rank, begin, end))
            return shards[name][saved_rank][begin:end].clone()

        part = functions["load_part"](rank, num_ranks, saved_ranks, dict(sizes), reads)
        parts.append({str(name): value for name, value in part.items()} if isinstance(part, dict) else f"{part!r:.60}")
        read.append([sum(max(0, end - begin) for each, _, begin, end in spans if each == name) for name in sizes])
        outside += [
            f"Rank {rank} read {span[0]}[{span[2]}:{span[3]}] of saved rank {span[1]}" for span in spans
            if span[2] < span[3]
            and not 0 <= span[2] <= span[3] <= shards[span[0]].shape[1]
        ]  # fmt: skip
    return {"parts": parts, "read": read, "outside": outside[:1]}


def padded(whole: Tensor, num_ranks: int) -> Tensor:
    """Return a flat tensor with zeros at its end, so that equal runs for each rank make it up."""
    return torch.nn.functional.pad(whole, (0, -whole.numel() % num_ranks))
