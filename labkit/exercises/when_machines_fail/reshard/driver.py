"""What a rank runs of reshard: each rank of a new world asks for its part, and what it reads is counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.values import flag, integer, listed

Reads = Callable[[int, int, int, int], Tensor]
"""reads(saved rank, number of the tensor, begin, end), begin and end within the shard."""


def drive(functions: Functions, inputs: Values) -> Values:
    """Load onto num_ranks what saved_ranks have written.

    Where two ranks take part, the files lie on rank 1, and each read is a message.

    Inputs: sizes ((name, elements) pairs), saved_ranks, num_ranks, apart (whether two ranks take part); where the files
    lie, wholes (each tensor, flat).
    """
    saved_ranks, num_ranks = integer(inputs, "saved_ranks"), integer(inputs, "num_ranks")
    sizes = {str(name): int(size) for name, size in listed(inputs, "sizes")}
    lengths = {name: -(-size // saved_ranks) for name, size in sizes.items()}
    if not flag(inputs, "apart"):
        reader = _reader(inputs, saved_ranks)
    elif dist.get_rank() == 1:
        return {"served": _serve(_reader(inputs, saved_ranks))}
    else:
        reader = _asked
    parts: list[Value] = []
    read: list[Value] = []
    outside: list[Value] = []
    for rank in range(num_ranks):
        spans: list[tuple[str, int, int, int]] = []

        def reads(saved_rank: int, name: str, begin: int, end: int, spans: Any = spans) -> Tensor:
            if not 0 <= saved_rank < saved_ranks:
                raise IndexError(f"{saved_rank} is no saved rank; they are 0 to {saved_ranks - 1}")
            there = range(lengths[name])[begin:end]
            spans.append((name, saved_rank, begin, end))
            return reader(saved_rank, list(sizes).index(name), there.start, max(there.start, there.stop))

        part = functions["load_part"](rank, num_ranks, saved_ranks, dict(sizes), reads)
        parts.append({str(name): value for name, value in part.items()} if isinstance(part, dict) else f"{part!r:.60}")
        read.append([sum(max(0, end - begin) for each, _, begin, end in spans if each == name) for name in sizes])
        outside += [
            f"Rank {rank} read {span[0]}[{span[2]}:{span[3]}] of saved rank {span[1]}" for span in spans
            if span[2] < span[3]
            and not 0 <= span[2] <= span[3] <= lengths[span[0]]
        ]  # fmt: skip
    if inputs["apart"]:
        dist.send(torch.full((4,), _END), 1)
    return {"parts": parts, "read": read, "outside": outside[:1]}


def _reader(inputs: Values, saved_ranks: int) -> Reads:
    """Return what reads the files of a case that are here."""
    shards = [padded(whole, saved_ranks).view(saved_ranks, -1) for whole in listed(inputs, "wholes")]
    return lambda saved_rank, number, begin, end: shards[number][saved_rank][begin:end].clone()


_END = -1


def _asked(saved_rank: int, number: int, begin: int, end: int) -> Tensor:
    """Return what rank 1 reads."""
    came = torch.zeros(end - begin, dtype=torch.float64)
    if len(came):
        dist.send(torch.tensor([saved_rank, number, begin, end]), 1)
        dist.recv(came, 1)
    return came


def _serve(reader: Reads) -> int:
    """Read for rank 0 until it has all parts; return how often."""
    count, asked = 0, torch.zeros(4, dtype=torch.int64)
    while True:
        dist.recv(asked, 0)
        if int(asked[0]) == _END:
            return count
        dist.send(reader(*asked.tolist()).contiguous(), 0)
        count += 1


def padded(whole: Tensor, num_ranks: int) -> Tensor:
    """Return a flat tensor with zeros at its end, so that equal runs for each rank make it up."""
    return torch.nn.functional.pad(whole, (0, -whole.numel() % num_ranks))
