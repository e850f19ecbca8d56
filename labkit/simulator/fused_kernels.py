"""Meta tensors take the fused kernels that a GPU would.

PyTorch chooses by the device: for meta tensors ``scaled_dot_product_attention`` takes the unfused way, which holds a
score for every pair of positions, and ``rms_norm`` is made of nine operators, where a GPU runs one kernel each. While
ranks run, their meta tensors of 16 bits take the fused kernels, so that time and memory are those of a GPU; so does
attention in float32, for which CUDA has a memory-efficient kernel. Attention with a mask, and tensors with values, go
their usual way. Linear layers: labkit.simulator.linear.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
import torch.nn.functional as functional

from labkit.simulator import linear
from labkit.simulator.stand_ins import is_stand_in
from labkit.simulator.state import current_rank
from labkit.torch_port.operators import flash_attention, rms_norm_backward, stand_in

_real_attention: Any = functional.scaled_dot_product_attention
_real_rms_norm: Any = functional.rms_norm
_HALVES = (torch.bfloat16, torch.float16)
_FUSED = (*_HALVES, torch.float32)

_Library: Any = torch.library.Library
_library = _Library("labkit", "DEF")
_library.define("rms_norm(Tensor input, Tensor weight) -> (Tensor, Tensor)")


def _rms_norm_shapes(given: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(given), torch.empty(*given.shape[:-1], 1, dtype=torch.float32, device="meta")


_library.impl("rms_norm", _rms_norm_shapes, "Meta")


@cache
def _tell_dtensors() -> None:
    """Tell torch how DTensors may be sharded: whole, or along any dimension but the one that is normalized.

    Their module takes half a second to load, so it is told once a program has loaded it.
    """
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.experimental import register_sharding

    @register_sharding(torch.ops.labkit.rms_norm.default)  # type: ignore[untyped-decorator]
    def shardings(given: Any, weight: Any) -> Any:
        along = [Replicate(), *(Shard(dim) for dim in range(len(given.shape) - 1))]
        return [([each, each], [each, Replicate()]) for each in along]


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, given: torch.Tensor, weight: torch.Tensor) -> Any:
        out, scale = torch.ops.labkit.rms_norm(given, weight)
        ctx.save_for_backward(given, weight, scale)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        given, weight, scale = ctx.saved_tensors
        wanted = [ctx.needs_input_grad[0], ctx.needs_input_grad[1]]
        shape = list(weight.shape)
        return rms_norm_backward(grads[0], given, shape, scale, weight, wanted)


def _lacks_values(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is on meta, also where it says that it is on a device."""
    return tensor.is_meta or (current_rank() is not None and is_stand_in(tensor))


def _rms_norm(
    input: torch.Tensor, normalized_shape: Sequence[int], weight: torch.Tensor | None = None, eps: float | None = None
) -> Any:
    fits = _lacks_values(input) and input.dtype in _HALVES and weight is not None and len(normalized_shape) == 1
    if not fits or current_rank() is None:
        return _real_rms_norm(input, normalized_shape, weight, eps)
    if "torch.distributed.tensor" in sys.modules:
        _tell_dtensors()
    apply: Any = _RmsNorm.apply
    return apply(input, weight)


def _attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    fits = attn_mask is None and _lacks_values(query) and query.dtype in _FUSED and query.dim() == 4
    if not fits or current_rank() is None:
        return _real_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    if torch.is_autocast_enabled("cuda"):
        dtype = torch.get_autocast_dtype("cuda")
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    if enable_gqa and key.shape[1] != query.shape[1]:
        size, heads, _, _ = query.shape
        key, value = (
            one[:, :, None].expand(-1, -1, heads // one.shape[1], -1, -1).reshape(size, heads, *one.shape[2:])
            for one in (key, value)
        )
    return flash_attention(query, key, value, dropout_p, is_causal, scale)[0]


# torch.distributed.tensor.experimental.context_parallel puts its own in the place that a function's name says.
stand_in(_attention, _real_attention)
stand_in(_rms_norm, _real_rms_norm)


@contextmanager
def installed() -> Iterator[None]:
    """Let meta tensors of ranks take fused kernels; leave torch as it was."""
    module: Any = functional
    module.scaled_dot_product_attention, module.rms_norm = _attention, _rms_norm
    try:
        with linear.installed():
            yield
    finally:
        module.scaled_dot_product_attention, module.rms_norm = _real_attention, _real_rms_norm
