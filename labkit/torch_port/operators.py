"""Operators as torch dispatches them: watching each call, what each is called, what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch._library import simple_registry
from torch.autograd import forward_ad
from torch.jit import _builtins
from torch.utils import _python_dispatch, flop_counter

_Mode: Any = _python_dispatch.TorchDispatchMode
_registry: Any = simple_registry.singleton


class DispatchMode(_Mode):  # type: ignore[misc]
    """A dispatch mode whose handler is called as it is, without a guard for torch.compile around each call.

    A torch that does not know the name below goes on without the saving.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class _Entries(dict[str, Any]):
    """Operators' entries in torch's registry, found without a frame of Python."""

    def __missing__(self, name: str) -> Any:
        entry = self[name] = type(_registry).find(_registry, name)
        rules = entry.torch_dispatch_rules
        tables = [value for value in vars(rules).values() if isinstance(value, dict)]
        if len(tables) == 1:
            rules.find = tables[0].get
        return entry


@contextmanager
def rules_found_quickly() -> Iterator[None]:
    """Let torch look up in C whether an operator has a rule of its own for a dispatch mode: it asks at each call."""
    entries = _Entries()
    _registry.find = entries.__getitem__
    try:
        yield
    finally:
        del _registry.find
        for entry in entries.values():
            vars(entry.torch_dispatch_rules).pop("find", None)


def flop_registry() -> dict[Any, Callable[..., int]]:
    """Return torch's own table of operators and how many floating-point operations they take."""
    return flop_counter.flop_registry


uncounted: Callable[[], Any] = torch._C._DisableTorchDispatch
"""Returns a context manager in which values are moved unseen by dispatch modes."""

unanswered: Callable[[], Any] = torch._C.DisableTorchFunction
"""Returns a context manager in which no function mode sees calls of torch's Python API."""


working_out_shapes: Callable[[], Any] = partial(torch._C._get_dispatch_mode, torch._C._TorchDispatchModeKey.FAKE)
"""Returns what works out the shapes that operators would yield, as DTensor does before it computes; None for nobody."""


dispatch_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack
"""Returns how many dispatch modes see operators of this thread, besides the one whose handler asks."""


def compiled(func: Any) -> Callable[..., Any]:
    """Return what calls an operator without a frame of Python; the operator itself where torch names it otherwise."""
    found: Callable[..., Any] = getattr(func, "_op", func)
    return found


_QUICK: dict[str, Callable[..., Any]] = {
    "aten.detach.default": torch.Tensor.detach,
    "aten.expand.default": torch.Tensor.expand,
    "aten.permute.default": torch.Tensor.permute,
    "aten.select.int": torch.Tensor.select,
    "aten.split.Tensor": torch._C.TensorBase.split,
    "aten.split_with_sizes.default": torch.Tensor.split_with_sizes,
    "aten.squeeze.dim": torch.Tensor.squeeze,
    "aten.t.default": torch.Tensor.t,
    "aten.transpose.int": torch.Tensor.transpose,
    "aten.unbind.int": torch.Tensor.unbind,
    "aten.unsqueeze.default": torch.Tensor.unsqueeze,
    "aten.view.default": torch.Tensor.view,
    "aten._unsafe_view.default": torch.Tensor.view,  # on meta, torch itself takes a way through Python to it
}


def quick(func: Any) -> Callable[..., Any] | None:
    """Return a method of tensors that does what an operator does in a quarter of the time, None for most.

    It sees what the operator sees, but function modes see it, and subclasses of tensors: it is for plain ones alone.
    """
    return _QUICK.get(str(func))


function_modes: Callable[[], bool] = torch._C._is_torch_function_mode_enabled
"""Returns whether a function mode sees calls of torch's Python API."""


matrix_product: Any = torch.ops.aten.mm.default
"""torch.mm."""


def looks_on() -> bool:
    """Return whether anything but one dispatch mode sees, or changes, what functions of torch do in this thread."""
    return bool(
        function_modes()
        or dispatch_modes() != 1
        or torch._C._is_any_autocast_enabled()
        or torch._C._are_functorch_transforms_active()
        or torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
        or torch._C._is_tracing()
        or torch.is_inference_mode_enabled()
        or forward_ad._current_level >= 0
    )


def stand_in(stands: Any, real: Any) -> None:
    """Give a function that is put in the place of one of torch.nn.functional's the name of that.

    Others look it up by the name; and ``torch.jit.script`` compiles the operator in place of its source.
    """
    stands.__name__ = stands.__qualname__ = real.__name__
    stands.__module__, stands.__doc__ = "torch.nn.functional", real.__doc__
    _builtins._register_builtin(stands, f"aten::{real.__name__}")


def packet_of(func: Any) -> Any:
    """Return what all overloads of an operator have in common; the table of floating-point operations is by that."""
    return func._overloadpacket


def name_of(func: Any) -> str:
    """Return an operator's name without its overload, such as "add"."""
    return str(func._overloadpacket.__name__)


def is_copy(func: Any) -> bool:
    """Return whether an operator only makes a copy of a tensor, on this device or another."""
    return name_of(func) in ("clone", TO_COPY)


def schema_of(func: Any) -> Any:
    """Return an operator's arguments and results: their types, and which alias or are written."""
    return func._schema


NAMES_OF_ITS_OWN = ("_c10d_functional", "_c10d_functional_autograd")
"""Namespaces of torch's own operators, besides those without an underscore."""

TO_COPY = "_to_copy"
"""What a tensor's `to` is where it copies."""

VIEWS = ("_unsafe_view", "_reshape_alias")
"""Operators that view a tensor and do not say so."""

READS_ONE = "_local_scalar_dense"
"""What a tensor's item() is."""

UNREAD = ("wait_tensor", "_wrap_tensor_autograd", *VIEWS)
"""Operators that wait for a tensor, hand it on or view it, and read no value, and that do not say so."""


def flash_attention(query: Any, key: Any, value: Any, dropout_p: float, is_causal: bool, scale: float | None) -> Any:
    """Return what the fused attention kernel of a GPU returns, on meta its shapes; the output comes first."""
    return torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, scale=scale)


def rms_norm_backward(
    grad: Any, given: Any, shape: list[int], scale: Any, weight: Any, wanted: list[bool]
) -> tuple[Any, ...]:
    """Return the gradients of the input and the weight from the fused kernel of a GPU, on meta their shapes."""
    return tuple(torch.ops.aten._fused_rms_norm_backward(grad, given, shape, scale, weight, wanted))


NEEDED: dict[str, Callable[[], object]] = {
    "torch.utils._python_dispatch.TorchDispatchMode": lambda: _python_dispatch.TorchDispatchMode,
    "torch.utils.flop_counter.flop_registry": flop_registry,
    "torch._library.simple_registry.singleton": lambda: _registry.find("aten::add").torch_dispatch_rules.find,
    "torch._C._DisableTorchDispatch": lambda: torch._C._DisableTorchDispatch,
    "torch._C.DisableTorchFunction": lambda: torch._C.DisableTorchFunction,
    "torch._C.TensorBase.split": lambda: torch._C.TensorBase.split,
    "torch._C._len_torch_dispatch_stack": dispatch_modes,
    "torch._C._get_dispatch_mode": working_out_shapes,
    "an operator's _op": lambda: torch.ops.aten.add.Tensor._op,
    "torch._C._is_torch_function_mode_enabled": function_modes,
    "what looks_on asks": looks_on,
    "torch.jit._builtins._register_builtin": lambda: _builtins._register_builtin,
    "torch.ops.aten._scaled_dot_product_flash_attention": lambda: torch.ops.aten._scaled_dot_product_flash_attention,
    "torch.ops.aten._fused_rms_norm_backward": lambda: torch.ops.aten._fused_rms_norm_backward,
    "torch.ops.aten._to_copy": lambda: getattr(torch.ops.aten, TO_COPY),
    "an operator's _overloadpacket": lambda: name_of(torch.ops.aten.add.Tensor),
    "an operator's _schema": lambda: schema_of(torch.ops.aten.add.Tensor),
}
"""Name -> how it is reached; a test calls each."""
