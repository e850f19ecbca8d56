"""Tensors as a collective sees them: how many bytes, on which device, copied, reduced."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from labkit.simulator.rounds import Part
from labkit.torch_port.gaps import check_dense, check_in_order
from labkit.torch_port.operations import BY_KIND
from labkit.torch_port.operators import unanswered
from labkit.torch_port.reduction import reduce_tensors
from labkit.torch_port.tensors import sparse_parts


def listing(ranks: Sequence[int]) -> str:
    """Return ranks as a report lists them, the first eight in full."""
    shown = ", ".join(map(str, ranks[:8]))
    return shown if len(ranks) <= 8 else f"{shown}, ... ({len(ranks)} ranks)"


def check_payload(kind: str, tensors: Sequence[torch.Tensor]) -> None:
    """Raise RuntimeError where a tensor is none that a call could move: not where ranks compute, or sparse.

    Args:
        kind: What was called.
        tensors: What it was given.
    """
    with unanswered():  # as they really are, not as a virtual device says
        for tensor in tensors:
            if not (tensor.is_cpu or tensor.is_meta):
                raise RuntimeError(
                    f"A tensor on {tensor.device} came to the virtual cluster, whose ranks compute on the CPU or on "
                    "meta; make tensors on labkit.device()."
                )
            if tensor.layout is not torch.strided:
                layout = str(tensor.layout).removeprefix("torch.")
                raise RuntimeError(
                    f"{kind} got a {layout} tensor: the only collective for sparse tensors is all_reduce, the sum of "
                    "sparse_coo tensors. Send indices() and values(), or to_dense()."
                )


def check_layout(
    kind: str, by: str, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], *, is_message: bool = False
) -> None:
    """Raise RuntimeError where a backend would refuse how tensors lie in memory, or leave wrong values.

    Args:
        kind: What was called.
        by: What carries it: "nccl", "gloo", or "" for either.
        inputs: What it gives.
        outputs: What it takes.
        is_message: Whether it is a send or a receive.
    """
    operation, every = BY_KIND.get(kind), [*inputs, *outputs]
    in_order = by != "nccl" if is_message else operation is not None and operation.in_order > 0
    if by == "nccl" or is_message:
        dense: Sequence[torch.Tensor] = every
    else:
        as_memory = 0 if operation is None else operation.as_memory
        dense = every if as_memory == 2 or (as_memory and not outputs) else outputs if as_memory else []
    with unanswered():
        for tensor in dense:
            check_dense(kind, tensor)
        for tensor in every if in_order else ():
            check_in_order(kind, tensor)


def layouts(tensors: Sequence[torch.Tensor]) -> str:
    """Return in words how tensors lie that do not lie in the order of their elements, "" where all do."""
    found = [f"{tensor.stride()}" for tensor in tensors if not tensor.is_contiguous()]
    return f" with strides {', '.join(found)}" if found else ""


def is_sparse_sum(tensors: Sequence[torch.Tensor], op: str) -> bool:
    """Return whether an all_reduce is one of sparse tensors, which adds."""
    return op == "SUM" and bool(tensors) and all(tensor.layout is torch.sparse_coo for tensor in tensors)


def bytes_of(tensors: Sequence[torch.Tensor]) -> int:
    """Return the bytes of all tensors; of a sparse one, those of its indices and values."""
    return sum(
        sum(part.nbytes for part in sparse_parts(tensor))
        if tensor.layout is torch.sparse_coo
        else tensor.numel() * tensor.element_size()
        for tensor in tensors
    )


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """Return a contiguous copy outside autograd."""
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def reduced(parts: list[Part], op: str) -> list[torch.Tensor]:
    """Return the reduction of each of the parts' tensors over all parts."""
    places = range(len(parts[0].inputs))
    return [reduce_tensors([part.inputs[place] for part in parts], op) for place in places]
