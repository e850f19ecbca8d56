"""Tensors whose elements do not fill a piece of memory, such as a column of a matrix.

NCCL refuses them. gloo takes the memory from the first element on for the elements in the calls that hand it a tensor's
memory as it is: what lies between is sent, or written over, and wrong values are left without a word.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def is_dense(tensor: torch.Tensor) -> bool:
    """Return whether the elements fill a piece of memory, in whatever order."""
    if tensor.is_contiguous():
        return True
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride != expected:
                return False
            expected *= size
    return True


def check_dense(kind: str, tensor: torch.Tensor) -> None:
    """Raise RuntimeError where a strided tensor has gaps in memory.

    Args:
        kind: What was called.
        tensor: What it was given.
    """
    if not is_dense(tensor):
        raise RuntimeError(
            f"{kind} got a tensor with gaps in memory, of shape {tuple(tensor.shape)} and strides "
            f"{tensor.stride()}: NCCL refuses it, and gloo reads the memory in between as elements and "
            "silently leaves wrong values. Pass tensor.contiguous(), and copy the result back."
        )


def check_in_order(kind: str, tensor: torch.Tensor) -> None:
    """Raise RuntimeError where the elements fill a piece of memory in another order than the tensor's own.

    Args:
        kind: What was called.
        tensor: What it was given.
    """
    if not tensor.is_contiguous() and is_dense(tensor):
        raise RuntimeError(
            f"{kind} got a tensor of shape {tuple(tensor.shape)} whose elements lie in another order in memory, with "
            f"strides {tensor.stride()}: its memory is handed over as it lies, so that values end in other places. "
            "Pass tensor.contiguous(), and copy the result back."
        )


def check_all_in_order(kind: str, values: Iterable[Any]) -> None:
    """Raise RuntimeError where a tensor of the CPU among values, or in lists among them, lies in another order."""
    import torch

    for value in values:
        if isinstance(value, torch.Tensor):
            if value.is_cpu and value.layout is torch.strided:
                check_in_order(kind, value)
        elif isinstance(value, list | tuple):
            check_all_in_order(kind, value)


def check_all_dense(kind: str, values: Iterable[Any]) -> None:
    """Raise RuntimeError where a tensor of the CPU among values, or in lists among them, has gaps in memory."""
    import torch

    for value in values:
        if isinstance(value, torch.Tensor):
            if value.is_cpu and value.layout is torch.strided:
                check_dense(kind, value)
        elif isinstance(value, list | tuple):
            check_all_dense(kind, value)
