"""Linear layers of meta tensors as three matrix products, where torch dispatches thirteen operators.

``linear`` without a bias is made of views and products: one forward, one backward for each gradient. Views cost nothing
and hold nothing, yet to dispatch each of them through Python takes most of what simulating a layer takes. So while
ranks run, a layer whose shapes were met before is one function of autograd, which records the products as torch would.
What is not plain goes torch's own way: a bias, a tensor that is not contiguous, autocast, modes, transforms, hooks on
saved tensors, and gradients of gradients.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as functional

from labkit.simulator.operators import Cost, Operator
from labkit.simulator.state import VirtualRank, current_rank
from labkit.torch_port.backward import is_wanted
from labkit.torch_port.operators import looks_on, matrix_product, stand_in, uncounted
from labkit.torch_port.process_tables import float32_matmul_precision

_real_linear: Any = functional.linear
_Tensor, _PLAIN = torch.Tensor, (torch.Tensor, torch.nn.Parameter)
_STRIDED, _default_dtype = torch.strided, torch.get_default_dtype


@dataclass(slots=True)
class _Product:
    """One of a layer's products.

    Attributes:
        key: What its call hangs on, as labkit.simulator.roofline looks it up.
        like: A tensor such as the layer makes of it.
        cost: What it costs; None before torch was seen to compute one like it.
    """

    key: Any
    like: torch.Tensor
    cost: Cost | None = None

    def is_known(self, rank: VirtualRank) -> bool:
        """Return whether its cost is known by now."""
        if self.cost is None and (known := _operator(rank)) is not None:
            remembered = known.results.get(self.key)
            self.cost = None if remembered is None else remembered.cost
        return self.cost is not None

    def carry_out(self, rank: VirtualRank, *args: torch.Tensor) -> torch.Tensor:
        """Return what it yields, and let its time pass."""
        with uncounted():
            out = self.like.clone()
        known, cost = _operator(rank), self.cost
        assert known is not None and cost is not None
        rank.roofline.record(known, cost, args, out)
        return out


@dataclass(frozen=True, slots=True)
class Layer:
    """What is known of a linear layer for inputs of one shape.

    Attributes:
        output: Input times weight.
        weight: The weight's gradient.
        input: The input's gradient.
    """

    output: _Product
    weight: _Product
    input: _Product


def _operator(rank: VirtualRank) -> Operator | None:
    found: Operator | None = rank.simulation.operators.get(id(matrix_product))
    return found


def _describe(given: torch.Tensor, weight: torch.Tensor) -> Layer | None:
    """Return a layer's products, None where torch would compute others."""
    dtype, shape = given.dtype, given.shape
    plain = dtype.is_floating_point and weight.dtype == dtype and weight.dim() == 2 and given.dim() > 1
    if not (plain and given.is_contiguous() and weight.is_contiguous() and shape[-1] == weight.shape[1]):
        return None
    outputs, inputs = weight.shape
    rows = given.numel() // inputs if inputs else 0
    if min(rows, inputs, outputs) < 2:  # strides of one element are anybody's
        return None

    def product(left: Any, right: Any, like: tuple[int, ...]) -> _Product:
        key = *left, dtype, *right, dtype, _default_dtype(), float32_matmul_precision()
        return _Product(key, torch.empty(like, dtype=dtype, device="meta"))

    grad_transposed = (outputs, rows), (1, outputs)
    rows_in, rows_out = ((rows, inputs), (inputs, 1)), ((rows, outputs), (outputs, 1))
    with uncounted():
        return Layer(
            product(rows_in, ((inputs, outputs), (1, inputs)), (*shape[:-1], outputs)),
            product(grad_transposed, rows_in, (outputs, inputs)),
            product(rows_out, ((outputs, inputs), (inputs, 1)), tuple(shape)),
        )


class Linear(torch.autograd.Function):
    """A layer's output, made already, and the gradients of its input and weight."""

    @staticmethod
    def forward(ctx: Any, given: torch.Tensor, weight: torch.Tensor, layer: Layer, made: list[torch.Tensor]) -> Any:
        """Return the output."""
        ctx.set_materialize_grads(False)
        ctx.layer = layer
        of_input, of_weight, _, _ = ctx.needs_input_grad
        ctx.save_for_backward(given if of_weight else None, weight if of_input else None)
        return made.pop()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Return the gradients, that of the weight computed first, as torch does."""
        grad, layer = grads[0], ctx.layer
        if grad is None:
            return None, None, None, None
        rank, (given, weight) = current_rank(), ctx.saved_tensors
        fits = rank is not None and _is_like(grad, layer.output) and not torch.is_grad_enabled() and not looks_on()
        of_input = of_weight = flat = None
        if given is not None and is_wanted(ctx, 1):
            if fits and layer.weight.is_known(rank):
                of_weight = layer.weight.carry_out(rank, grad, given)
            else:
                flat = grad.reshape(-1, grad.shape[-1])
                of_weight = flat.t().mm(given.view(-1, given.shape[-1]))
        if weight is not None and is_wanted(ctx, 0):
            if fits and layer.input.is_known(rank):
                of_input = layer.input.carry_out(rank, grad, weight)
            else:
                flat = grad.reshape(-1, grad.shape[-1]) if flat is None else flat
                of_input = flat.mm(weight).view(layer.input.like.shape)
        return of_input, of_weight, None, None


def _in_rows(grads: tuple[torch.Tensor | None, ...]) -> tuple[torch.Tensor] | None:
    """Return an output's gradient in rows, copied where it has none: after a hook the one that came is free."""
    grad = grads[0]
    if grad is None or grad.is_contiguous():
        return None
    rows = grad.reshape(-1, grad.shape[-1])
    return None if rows.untyped_storage() is grad.untyped_storage() else (rows.view(grad.shape),)


def _is_like(grad: torch.Tensor, output: _Product) -> bool:
    like = output.like
    return (
        type(grad) is _Tensor and grad.is_meta and grad.dtype is like.dtype
        and grad.shape == like.shape and grad.stride() == like.stride()
    )  # fmt: skip


_apply: Any = super(torch.autograd.Function, Linear).apply  # without two frames of Python, which serve transforms


def _linear(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Any:
    rank = current_rank()
    if (
        bias is not None or rank is None or type(input) is not _Tensor or type(weight) not in _PLAIN
        or not input.is_meta or not weight.is_meta or input.is_inference() or weight.is_inference()
        or input.layout is not _STRIDED or weight.layout is not _STRIDED
        or rank.process.accelerator is not None or looks_on()
    ):  # fmt: skip
        return _real_linear(input, weight, bias)
    layers = rank.simulation.layers
    key = (
        input.shape, input.stride(), input.dtype, weight.shape, weight.stride(), weight.dtype,
        _default_dtype(), float32_matmul_precision(),
    )  # fmt: skip
    try:
        layer = layers[key]
    except KeyError:
        layer = layers[key] = _describe(input, weight)
    if layer is None or not layer.output.is_known(rank):
        return _real_linear(input, weight, bias)
    out = layer.output.carry_out(rank, input, weight)
    if torch.is_grad_enabled() and (input.requires_grad or weight.requires_grad):
        out = _apply(input, weight, layer, [out])
        out.grad_fn.register_prehook(_in_rows)
    return out


stand_in(_linear, _real_linear)


@contextmanager
def installed() -> Iterator[None]:
    """Let linear layers of ranks be recorded so; leave torch as it was."""
    module: Any = functional
    module.linear = _linear
    try:
        yield
    finally:
        module.linear = _real_linear
