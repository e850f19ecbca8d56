"""Tensors as a collective sees them: how many bytes, in which words, copied, reduced, split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from labkit.simulator.reduction import reduce_tensors
from labkit.simulator.rounds import Part


def listing(ranks: Sequence[int]) -> str:
    """Return ranks as a report lists them, the first eight in full."""
    shown = ", ".join(map(str, ranks[:8]))
    return shown if len(ranks) <= 8 else f"{shown}, ... ({len(ranks)} ranks)"


def listed(tensors: Any) -> list[torch.Tensor]:
    """Return one tensor or several as a list."""
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def on_cpu(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors, which must be where virtual ranks compute; raises RuntimeError where one is not."""
    for tensor in tensors:
        if not (tensor.is_cpu or tensor.is_meta):
            raise RuntimeError(
                f"A tensor on {tensor.device} came to the virtual cluster, whose ranks compute on the CPU or on meta; "
                "make tensors on labkit.device()."
            )
    return tensors


def bytes_of(tensors: Sequence[torch.Tensor]) -> int:
    """Return the bytes of all tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def in_words(tensors: Sequence[torch.Tensor]) -> str:
    """Return what all tensors are, as "4 x float32"."""
    shown = [f"{tensor.numel()} x {str(tensor.dtype).removeprefix('torch.')}" for tensor in tensors]
    if len(set(shown)) == 1 and len(shown) > 1:
        return f"{len(shown)} tensors of {shown[0]}"
    return ", ".join(shown)


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """Return a contiguous copy outside autograd."""
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def reduced(parts: list[Part], op: str) -> list[torch.Tensor]:
    """Return the reduction of each of the parts' tensors over all parts."""
    places = range(len(parts[0].inputs))
    return [reduce_tensors([part.inputs[place] for part in parts], op) for place in places]


def rows_of(tensor: torch.Tensor, sizes: Sequence[int] | None, world_size: int, name: str) -> list[torch.Tensor]:
    """Return the rows of a tensor that go to or come from each rank; raises RuntimeError where they do not add up."""
    if not sizes:
        if tensor.size(0) % world_size:
            raise RuntimeError(
                f"all_to_all_single: {tensor.size(0)} rows of the {name} do not divide among {world_size} ranks; "
                "give split sizes."
            )
        sizes = [tensor.size(0) // world_size] * world_size
    if sum(sizes) != tensor.size(0):
        raise RuntimeError(
            f"all_to_all_single: {name} split sizes add up to {sum(sizes)}, and the {name} has {tensor.size(0)} rows."
        )
    return list(torch.split(tensor.detach(), list(sizes)))
