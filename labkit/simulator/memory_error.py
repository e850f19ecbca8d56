"""The error of a rank whose device is full, in words."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from labkit.simulator.record import at, short
from labkit.simulator.state import current_rank
from labkit.units import format_bytes

_MOST_LINES = 6
_ADVICE = {
    "activations": "smaller batches or more microbatches, torch.utils.checkpoint to compute them again, "
    "torch.no_grad() where nothing is trained, bfloat16",
    "parameters": "fully_shard, pipeline stages or tensor parallelism to split the model over more ranks, bfloat16",
    "gradients": "zero_grad(set_to_none=True) before the forward pass, gradient_as_bucket_view=True in "
    "DistributedDataParallel, fully_shard",
    "optimizer state": "ZeroRedundancyOptimizer or fully_shard to split it over the ranks, or an optimizer with less "
    "state",
    "communication": "smaller buckets (bucket_cap_mb), gradient_as_bucket_view=True, sending chunks",
    "buffers": "fewer or smaller register_buffer",
    "other": "smaller batches; del what is not needed any more",
}


class OutOfVirtualMemory(torch.OutOfMemoryError):
    """Raised in a rank where a tensor does not fit into what is left of its device's memory.

    ``except torch.OutOfMemoryError`` catches it, as it would on the device; the tensor is not there then.
    """


@dataclass(frozen=True, slots=True)
class Held:
    """A tensor that lives, as the report lists it: those that agree in everything share a line.

    Attributes:
        bytes: Its size.
        category: What it is for.
        shape, dtype: What it is; "" for a dtype where that was not kept, as of small tensors.
        operator: What made it.
        source: The learner's file:line that did.
    """

    bytes: int
    category: str
    shape: tuple[int, ...] = ()
    dtype: str = ""
    operator: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """The tensor that does not fit.

    Attributes:
        bytes: Its size.
        shape, dtype: What it is.
        operator: What would make it.
        source: The learner's file:line.
    """

    bytes: int
    shape: tuple[int, ...]
    dtype: str
    operator: str
    source: str


def out_of_memory(
    rank: int, device: str, capacity: int, total: int, asked: Asked, held: Mapping[Held, int], idle: int = 0
) -> OutOfVirtualMemory:
    """Return the error.

    Args:
        rank: Who.
        device: What its device is called.
        capacity: Bytes the device holds.
        total: Bytes held now.
        asked: What does not fit.
        held: All tensors that live, and how many of each.
        idle: What of the bytes held no tensor has.
    """
    lines = [
        f"Rank {rank} is out of memory{at(asked.source)}: {asked.operator} makes a tensor of "
        f"{format_bytes(asked.bytes)} ({_words(asked.shape, asked.dtype)}), and "
        f"{format_bytes(max(capacity - total, 0))} of the {format_bytes(capacity)} of its {device} are free."
    ]
    by_category: dict[str, int] = {}
    for one, count in held.items():
        by_category[one.category] = by_category.get(one.category, 0) + count * one.bytes
    ordered = sorted(by_category.items(), key=lambda item: (-item[1], item[0]))
    if ordered:
        lines.append(f"  live: {', '.join(f'{name} {format_bytes(size)}' for name, size in ordered if size)}")
    if idle:
        lines.append(f"  reserved beside that: {format_bytes(idle)}, cut into parts or kept for another stream")
    known = [(one, count) for one, count in held.items() if one.dtype]
    known.sort(key=lambda item: (-item[0].bytes * item[1], str(item[0])))
    for number, (one, count) in enumerate(known[:_MOST_LINES]):
        times = f"{count} x " if count > 1 else ""
        made = f" by {one.operator}" if one.operator else ""
        lines.append(
            f"  {'         ' if number else 'largest: '}{times}{format_bytes(one.bytes)} of {one.category} "
            f"({_words(one.shape, one.dtype)}), made{made} at {short(one.source) or 'a line that is not known'}"
        )
    if asked.bytes > capacity:
        lines.append(f"  what helps: a smaller tensor; this one alone is more than a whole {device} holds.")
    elif ordered:
        lines.append(f"  what helps against {ordered[0][0]}: {_ADVICE[ordered[0][0]]}.")
    return OutOfVirtualMemory("\n".join(lines))


def beyond_the_host(error: RuntimeError, operator: str) -> RuntimeError | None:
    """Return the error of a tensor for whose values this host has no memory, or None where this one is another.

    Args:
        error: What torch's allocator raised.
        operator: What was to make the tensor.
    """
    asked = re.search(r"you tried to allocate (\d+) bytes", str(error))
    rank = current_rank()
    if asked is None or rank is None or rank.record.memory is None:
        return None
    memory, device, num_bytes = rank.record.memory, rank.simulation.cluster.device.name, int(asked[1])
    if memory.total + num_bytes > memory.capacity:
        wanted = Asked(num_bytes, (num_bytes,), "uint8", operator, rank.simulation.sources.find(sys._getframe(2))[0])
        return out_of_memory(rank.rank, device, memory.capacity, memory.total, wanted, {})
    return RuntimeError(
        f"{operator} makes a tensor of {format_bytes(num_bytes)}: the virtual {device} of rank {rank.rank} has room, "
        "and this host, which computes its values, has not. Make large models under torch.device('meta'): they run "
        "without values, with the same time and memory."
    )


def _words(shape: tuple[int, ...], dtype: str) -> str:
    return f"{' x '.join(map(str, shape)) or 'one'}, {dtype}"
