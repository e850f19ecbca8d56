"""The storages behind a tensor, and the tensors in a value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from labkit.torch_port.tensors import sparse_parts

_Tensor, _Parameter = torch.Tensor, torch.nn.Parameter
ON_DEVICE = "labkit_on_device"
"""Attribute of the storages that are on a virtual CUDA device."""


def storages_of(tensor: torch.Tensor) -> Sequence[Any]:
    """Return the storages behind a tensor: one, or those inside a DTensor or a sparse tensor."""
    kind = type(tensor)
    if kind is not _Tensor and kind is not _Parameter and hasattr(kind, "__tensor_flatten__"):
        wrapper: Any = tensor
        names, _ = wrapper.__tensor_flatten__()
        parts = [getattr(wrapper, name) for name in names]
        return [storage for part in parts if isinstance(part, torch.Tensor) for storage in storages_of(part)]
    try:
        return (tensor.untyped_storage(),)
    except NotImplementedError:
        if tensor.layout is torch.sparse_coo:
            indices, values = sparse_parts(tensor)
            return (indices.untyped_storage(), values.untyped_storage())
        return ()


def tensors_in(values: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors among values and in the lists, tuples and dicts among them."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_in(value)
        elif isinstance(value, dict):
            yield from tensors_in(value.values())


def holds(storage: Any) -> bool:
    """Return whether a storage is on a virtual CUDA device."""
    return ON_DEVICE in vars(storage)
