"""What a rank runs of power_sgd."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.other_kind import named_for
from labkit.checks.values import integer, listed, tensors
from labkit.exercises.gradient_compression.on_ranks import group_of, parts_of


def drive(functions: Functions, inputs: Values) -> Values:
    """Average a list of tensors together, or compress this rank's buckets with one PowerSGD (power_sgd).

    Inputs: tensors, and optional group; or rank and buckets, for each call the list of its gradients.
    """
    return _average_list(functions, inputs) if "tensors" in inputs else _compress_buckets(functions, inputs)


def _average_list(functions: Functions, inputs: Values) -> Values:
    group, member = group_of(inputs)
    if not member:
        return {"member": False}
    mine = tensors(inputs, "tensors")
    given = [tensor.clone() for tensor in mine]
    means = functions["average_together"](given, *([group] if group else []))
    changed = any(not torch.equal(now, before) for now, before in zip(given, mine, strict=True))
    return {"means": _tensors(means), "changed": changed}


def _tensors(values: Any) -> Value:
    """Return copies of a list of tensors, or in words what it is instead."""
    if not isinstance(values, list | tuple):
        return f"a {type(values).__name__}"
    odd = next((value for value in values if not isinstance(value, Tensor)), None)
    return [value.detach().clone() for value in values] if odd is None else f"a list with a {type(odd).__name__}"


def _compress_buckets(functions: Functions, inputs: Values) -> Values:
    averaged: list[int] = []

    def average(bucket: Any) -> list[Tensor]:
        if isinstance(bucket, Tensor):
            raise TypeError("average takes a list of tensors, and was given one tensor")
        given: list[Tensor] = list(bucket)
        sizes = [tensor.numel() for tensor in given]
        averaged.append(sum(sizes))
        joined = torch.cat([tensor.detach().flatten() for tensor in given])
        dist.all_reduce(joined)
        pieces = torch.split(joined / dist.get_world_size(), sizes)
        return [piece.view(tensor.shape) for piece, tensor in zip(pieces, given, strict=True)]

    torch.manual_seed(dist.get_rank())
    compressor = functions["PowerSGD"](integer(inputs, "rank"), named_for(average, inputs))
    found: list[Value] = []
    for gradients in listed(inputs, "buckets"):
        given = [gradient.clone() for gradient in gradients]
        averaged.clear()
        packets = compressor.compress(given)
        problem = _no_packets(packets, len(given))
        if problem is not None:
            found.append({"problem": problem})
            continue
        parts = [[part.clone() for part in packet.parts] for packet in packets]
        found.append(
            {
                "parts": [*parts],
                "backs": [compressor.decompress(packet) for packet in packets],
                "averaged": list(averaged),
                "changed": any(not torch.equal(now, before) for now, before in zip(given, gradients, strict=True)),
            }
        )
    return {"came": found}


def _no_packets(packets: Any, count: int) -> str | None:
    """Return what is wrong with what should be a list of packets, or None."""
    if not isinstance(packets, list | tuple):
        return (
            f"compress returned {'None' if packets is None else f'a {type(packets).__name__}'}, not a list of packets"
        )
    if len(packets) != count:
        return f"compress returned {len(packets)} packets for {count} gradients"
    return next((parts for parts in map(parts_of, packets) if isinstance(parts, str)), None)
