"""``torch.autocast("cuda")`` on virtual devices: the CPU's machinery, with CUDA's choice of what stays exact.

Both cast matrix products, convolutions and attention down; torch's own CPU autocast does that here. CUDA also computes
a list of functions in float32 that the CPU leaves in what they are given: those are cast up before they are called.
Nobody casts for tensors without values, which are on meta: all of it is done here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from labkit.torch_port.tensors import is_view

_NAMES = """
    acos asin binary_cross_entropy_with_logits cosh cosine_embedding_loss cdist cosine_similarity cross_entropy cumprod
    cumsum dist erfinv exp expm1 group_norm hinge_embedding_loss kl_div l1_loss layer_norm log log10 log_softmax log1p
    log2 margin_ranking_loss mse_loss multilabel_margin_loss multi_margin_loss nll_loss norm normalize pdist
    poisson_nll_loss pow prod reciprocal rsqrt sinh smooth_l1_loss soft_margin_loss softmax softmin softplus sum renorm
    tan triplet_margin_loss __pow__ __rpow__
"""
EXACT = frozenset(_NAMES.split())
"""Source: https://docs.pytorch.org/docs/stable/amp.html, "CUDA Ops that can autocast to float32"."""

_LOWER = """
    __matmul__ __rmatmul__ addbmm addmm addmv addr baddbmm bilinear bmm chain_matmul conv1d conv2d conv3d conv_tbc
    conv_transpose1d conv_transpose2d conv_transpose3d einsum linear matmul mm multi_dot mv prelu
    scaled_dot_product_attention gru_cell lstm_cell rnn_relu_cell rnn_tanh_cell
"""
LOWER = frozenset(_LOWER.split())
"""From there, too: "CUDA Ops that can autocast to float16"."""

_WIDEST = "__setitem__ addcdiv addcmul atan2 cat cross dot grid_sample index_put scatter_add stack tensordot vdot"
WIDEST = frozenset(_WIDEST.split())
"""And "CUDA Ops that promote to the widest input type"."""

_HALVES = (torch.float16, torch.bfloat16)


def in_the_dtype_of_cuda(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Return the arguments that CUDA's autocast would call the function with, where the CPU's would not."""
    if getattr(func, "__name__", "") not in EXACT:
        return args, kwargs
    return tuple(map(_exact, args)), {name: _exact(value) for name, value in kwargs.items()}


def _exact(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.dtype in _HALVES else value


def in_lower_precision(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], casts: dict[int, tuple[Any, Any]]
) -> tuple[Any, Any]:
    """Return the arguments that autocast would call a function with, where their tensors are on meta.

    Args:
        func: The function.
        args: Its arguments.
        kwargs: Its keyword arguments.
        casts: Parameters cast so far, by their ids; grows.
    """
    name = getattr(func, "__name__", "")
    if name in LOWER:
        dtype = torch.get_autocast_dtype("cuda")
    elif name in WIDEST and any(one.dtype is torch.float32 for one in _meta_tensors(args)):
        dtype = torch.float32
    else:
        return args, kwargs

    def cast(value: Any) -> Any:
        if type(value) in (list, tuple):
            return type(value)(map(cast, value))
        if not _is_cast(value, dtype):
            return value
        lasts = value.dtype is torch.float32 and value.requires_grad and value.is_leaf and not is_view(value)
        if not (lasts and torch.is_autocast_cache_enabled()):
            return value.to(dtype)
        if id(value) not in casts:
            casts[id(value)] = (value, value.to(dtype))
        return casts[id(value)][1]

    last_first = [cast(value) for value in reversed(args)]  # in the order in which torch's own C++ casts them
    return tuple(reversed(last_first)), {key: cast(value) for key, value in kwargs.items()}


def _is_cast(value: Any, dtype: torch.dtype) -> bool:
    fits = isinstance(value, torch.Tensor) and value.is_meta and value.is_floating_point()
    return fits and value.dtype is not dtype and value.dtype is not torch.float64


def _meta_tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.is_meta:
                yield value
        elif type(value) in (list, tuple):
            yield from _meta_tensors(value)
