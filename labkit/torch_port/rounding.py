"""A run with other roundings: every operator in float64 and rounded back, or sums in another order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from labkit.torch_port.operators import DispatchMode, schema_of

_SMALL = (torch.float32, torch.bfloat16, torch.float16)
_AS_THEY_ARE = ("empty", "new_", "_to_copy", "clone", "copy", "rand", "normal", "bernoulli", "native_dropout", "c10d")


class InFloat64(DispatchMode):
    """Each operator computes in float64, and its result is rounded to what it would be."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Return what the operator gives."""
        kwargs = kwargs or {}
        if not _is_plain(func) or any(type(one) is not torch.Tensor for one in _tensors(args)):
            return func(*args, **kwargs)
        dtypes = {one.dtype for one in _tensors(args) if one.is_floating_point()}
        if len(dtypes) != 1 or not dtypes <= set(_SMALL):
            return func(*args, **kwargs)
        dtype = dtypes.pop()
        try:
            out = func(*_mapped(args, lambda one: one.double() if one.is_floating_point() else one), **kwargs)
        except (RuntimeError, NotImplementedError):  # an operator that knows no float64
            return func(*args, **kwargs)
        return _mapped(out, lambda one: one.to(dtype) if one.dtype == torch.float64 else one)


class OtherOrder(DispatchMode):
    """Products of matrices and sums add up from the other end."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Return what the operator gives."""
        kwargs = kwargs or {}
        turned = _TURNED.get(str(func.overloadpacket))
        if turned is None or any(type(one) is not torch.Tensor for one in _tensors(args)):
            return func(*args, **kwargs)
        return func(*turned(args), **kwargs)


def _product(args: Any) -> Any:
    one, other = args[-2], args[-1]
    return (*args[:-2], one.flip(-1), other.flip(-2))


def _sum(args: Any) -> Any:
    return (args[0].flip(*range(args[0].dim())), *args[1:]) if len(args) == 1 and args[0].dim() else args


_TURNED: dict[str, Callable[[Any], Any]] = {
    "aten.mm": _product, "aten.addmm": _product, "aten.bmm": _product, "aten.sum": _sum, "aten.mean": _sum,
}  # fmt: skip


def _is_plain(func: Any) -> bool:
    schema = schema_of(func)
    if any(one.alias_info is not None for one in (*schema.arguments, *schema.returns)):
        return False
    name = str(func.overloadpacket)
    return name.startswith("aten.") and not any(part in name for part in _AS_THEY_ARE)


def _tensors(values: Any) -> list[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        return [values]
    if isinstance(values, list | tuple):
        return [one for value in values for one in _tensors(value)]
    return []


def _mapped(values: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(values, torch.Tensor):
        return change(values)
    if isinstance(values, list | tuple):
        return type(values)(_mapped(one, change) for one in values)
    return values
