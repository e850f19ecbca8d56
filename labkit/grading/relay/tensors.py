"""Tensors and bytes: what the rank's side of the `relay` backend sends and writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from labkit.grading.relay.client import Payload

Tensors = Sequence[torch.Tensor]


def is_carried(tensor: torch.Tensor) -> None:
    """Raise ValueError unless a message is what the relay carries: a contiguous tensor on the CPU or a GPU."""
    if tensor.device.type not in ("cpu", "cuda"):
        raise ValueError(f"Tensors must be on the CPU here, this one is on {tensor.device}")
    if not tensor.is_contiguous():
        raise ValueError("Tensors must be contiguous")


def num_bytes(tensor: torch.Tensor) -> int:
    """Return a tensor's size in bytes."""
    return tensor.numel() * tensor.element_size()


def nothing() -> torch.Tensor:
    """Return an empty tensor, for a rank that contributes none."""
    return torch.empty(0, dtype=torch.uint8)


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """Return a tensor's bytes in row-major order, without a copy where it is contiguous on the CPU."""
    array: Any = tensor.detach().contiguous().reshape(-1).view(torch.uint8).cpu().numpy()
    return memoryview(array)


def joined(tensors: Tensors) -> torch.Tensor:
    """Return the bytes of all tensors in one."""
    return torch.cat([tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in tensors])


def like(tensor: torch.Tensor, data: Payload) -> torch.Tensor:
    """Return a new tensor with the shape and dtype of `tensor` and these bytes."""
    if len(data) != num_bytes(tensor):
        raise ValueError(f"{len(data)} bytes came for a tensor of {num_bytes(tensor)} bytes; all ranks must agree")
    if not len(data):
        return torch.empty_like(tensor, memory_format=torch.contiguous_format)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(tensor.dtype).reshape(tensor.shape)


def write(tensor: torch.Tensor, data: Payload) -> None:
    """Copy received bytes into a tensor."""
    with torch.no_grad():
        tensor.detach().copy_(like(tensor, data))


def write_all(outputs: Tensors, pieces: Sequence[Payload]) -> None:
    """Copy one received piece into each output."""
    for out, piece in zip(outputs, pieces, strict=True):
        write(out, piece)
