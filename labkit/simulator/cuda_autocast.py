"""``torch.autocast("cuda")`` on virtual devices: the CPU's machinery, with CUDA's choice of what stays exact.

Both cast matrix products, convolutions and attention down; torch's own CPU autocast does that here. CUDA also computes
a list of functions in float32 that the CPU leaves in what they are given: those are cast up before they are called.
"""

from __future__ import annotations

from typing import Any

import torch

_NAMES = """
    acos asin binary_cross_entropy_with_logits cosh cosine_embedding_loss cdist cosine_similarity cross_entropy cumprod
    cumsum dist erfinv exp expm1 group_norm hinge_embedding_loss kl_div l1_loss layer_norm log log10 log_softmax log1p
    log2 margin_ranking_loss mse_loss multilabel_margin_loss multi_margin_loss nll_loss norm normalize pdist
    poisson_nll_loss pow prod reciprocal rsqrt sinh smooth_l1_loss soft_margin_loss softmax softmin softplus sum renorm
    tan triplet_margin_loss __pow__ __rpow__
"""
EXACT = frozenset(_NAMES.split())
"""Source: https://docs.pytorch.org/docs/stable/amp.html, "CUDA Ops that can autocast to float32"."""

_HALVES = (torch.float16, torch.bfloat16)


def in_the_dtype_of_cuda(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Return the arguments that CUDA's autocast would call the function with, where the CPU's would not."""
    if getattr(func, "__name__", "") not in EXACT:
        return args, kwargs
    return tuple(map(_exact, args)), {name: _exact(value) for name, value in kwargs.items()}


def _exact(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.dtype in _HALVES else value
