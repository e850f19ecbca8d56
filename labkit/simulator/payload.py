"""Tensors as a collective sees them: how many bytes, on which device, copied, reduced."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from labkit.simulator.rounds import Part
from labkit.torch_port.operators import unanswered
from labkit.torch_port.reduction import reduce_tensors


def listing(ranks: Sequence[int]) -> str:
    """Return ranks as a report lists them, the first eight in full."""
    shown = ", ".join(map(str, ranks[:8]))
    return shown if len(ranks) <= 8 else f"{shown}, ... ({len(ranks)} ranks)"


def on_cpu(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors, which must be where virtual ranks compute; raises RuntimeError where one is not."""
    with unanswered():  # where they really are, not where a virtual device says
        for tensor in tensors:
            if not (tensor.is_cpu or tensor.is_meta):
                raise RuntimeError(
                    f"A tensor on {tensor.device} came to the virtual cluster, whose ranks compute on the CPU or on "
                    "meta; make tensors on labkit.device()."
                )
    return tensors


def bytes_of(tensors: Sequence[torch.Tensor]) -> int:
    """Return the bytes of all tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """Return a contiguous copy outside autograd."""
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def reduced(parts: list[Part], op: str) -> list[torch.Tensor]:
    """Return the reduction of each of the parts' tensors over all parts."""
    places = range(len(parts[0].inputs))
    return [reduce_tensors([part.inputs[place] for part in parts], op) for place in places]
