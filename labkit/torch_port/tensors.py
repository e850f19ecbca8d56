"""What a tensor, a module or a checkpoint keeps behind a name of torch's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn


def version_of(tensor: Tensor) -> int:
    """Return how often a tensor, or any view of its storage, was written in place."""
    return int(tensor._version)


def sparse_parts(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Return the indices and values of a sparse tensor; the public accessors refuse one that is not coalesced."""
    return tensor._indices(), tensor._values()


def local_part(tensor: Tensor) -> Tensor | None:
    """Return what this rank holds of a tensor: itself, a DTensor's own piece; None for what holds several."""
    if type(tensor) is Tensor or isinstance(tensor, nn.Parameter) or not hasattr(type(tensor), "__tensor_flatten__"):
        held = getattr(tensor, "_local_tensor", None)
        return tensor if held is None else held
    wrapper: Any = tensor
    return getattr(wrapper, "_local_tensor", None)


def own_parameters(module: nn.Module) -> Mapping[str, Any]:
    """Return a module's own parameters by name, None among them, whatever its methods are overridden with."""
    return module._parameters


def own_buffers(module: nn.Module) -> Mapping[str, Any]:
    """Return a module's own buffers by name, None among them."""
    return module._buffers


CHECKPOINT_PARTS = ("CheckpointFunction", "_checkpoint_without_reentrant_generator")
"""What torch.utils.checkpoint.checkpoint calls: a class for reentrant backward passes, a function for the others."""


def is_view(tensor: Tensor) -> bool:
    """Return whether autograd knows a tensor as a view of another."""
    return tensor._base is not None
