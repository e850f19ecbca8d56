"""Calls of torch's Python API on tensors without values, answered for a rank: places, numbers, files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch

from labkit.simulator.shapes import read
from labkit.simulator.stand_ins import (
    affirm,
    decided,
    forget,
    has_fractions,
    is_number,
    is_stand_in,
    like,
    says_yes,
    stand_in_of,
    stands,
)
from labkit.simulator.state import current_rank
from labkit.simulator.storages import holds

_Tensor: Any = torch.Tensor
_MOST_FILLED = 1 << 16
Answer = Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], Any]


def placed(accelerator: Any, made: torch.Tensor) -> torch.Tensor:
    """Return a tensor that a call made on the device: without values if it should have none.

    torch's own fake tensors have none anyway, and must all seem to be in one place.
    """
    if made.is_meta or not (has_fractions(made) and made.dim()) or hasattr(made, "fake_mode"):
        return made
    stand_in = like(made).requires_grad_(made.requires_grad)
    accelerator.put(stand_in)
    return stand_in


def _is_meta(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    return func(*args) and not is_stand_in(args[0])


def _number(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    tensor = args[0]
    if not is_stand_in(tensor) or tensor.numel() != 1:
        return func(*args, **kwargs)
    value = func(*args, **kwargs)  # the operator below yields what stands in, and its time passes
    kind = func.__name__
    value = type(value)(read(tensor, kind))
    if kind in ("__bool__", "is_nonzero"):
        decided("bool")
    return value if kind in ("__index__", "__float__", "__int__") else stand_in_of(value)


def _finite(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    out = func(*args, **kwargs)
    return affirm(out) if is_stand_in(out) else out


def _of_all(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    out = func(*args, **kwargs)
    yes = any(isinstance(one, torch.Tensor) and says_yes(one) for one in args)
    return affirm(out) if yes and isinstance(out, torch.Tensor) else out


def _filled(tensor: torch.Tensor, how: str) -> Any:
    value = read(tensor, how)
    dtype = torch.empty(0, dtype=tensor.dtype).numpy().dtype if tensor.dtype != torch.bfloat16 else np.dtype("float32")
    if tensor.numel() > _MOST_FILLED:
        return np.broadcast_to(np.array(value, dtype), tuple(tensor.shape))
    return np.full(tuple(tensor.shape), value, dtype)


def _numpy(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    if not is_stand_in(args[0]) or mode.accelerator.is_on(args[0]):
        return mode.of_devices[func](mode, func, args, kwargs)
    return _filled(args[0], "numpy")


def _tolist(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    if not is_stand_in(args[0]):
        return func(*args, **kwargs)
    return _marked(_filled(args[0], "tolist").tolist())


def _marked(value: Any) -> Any:
    return [_marked(one) for one in value] if isinstance(value, list) else stand_in_of(value)


def _shown(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    tensor = args[0]
    if not is_stand_in(tensor):
        return func(*args, **kwargs)
    if func.__name__ == "__format__" and tensor.dim() == 0:
        return format(read(tensor, "format"), *args[1:])
    device = mode.accelerator.device if mode.accelerator.is_on(tensor) else "cpu"
    return f"tensor(..., device='{device}', size={tuple(tensor.shape)}, dtype={tensor.dtype})"


def _set_data(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    target, value = args
    if target.is_meta and not value.is_meta:
        value = placed(mode.accelerator, value) if mode.accelerator.is_on(value) else forget(like(value))
    return func(target, value)


def _same(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    if not any(isinstance(one, torch.Tensor) and is_stand_in(one) for one in args[:2]):
        return func(*args, **kwargs)
    read(args[0], func.__name__)
    decided(func.__name__)
    return args[0].shape == args[1].shape


def _address(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    tensor = args[0]
    if not tensor.is_meta:
        return func(*args)
    return id(tensor.untyped_storage()) + tensor.storage_offset() * tensor.element_size()


def _pickled(accelerator: Any, tensor: torch.Tensor) -> Any:
    """Return what a file holds of a tensor without values."""
    where = str(accelerator.device) if accelerator.is_on(tensor) else "cpu"
    return rebuilt, (tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.requires_grad, where)


def rebuilt(
    shape: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype, requires_grad: bool, where: str
) -> torch.Tensor:
    """Return a tensor without values that a file says was there."""
    rank = current_rank()
    accelerator = None if rank is None else rank.process.accelerator
    if accelerator is None or not accelerator.shapes:
        raise RuntimeError(
            "This file was written by a run with shapes only: it says what its tensors are like and has none of their "
            "values. Read it in such a run."
        )
    asked = accelerator.loads_to
    if isinstance(asked, dict):
        asked = asked.get(where)
    if callable(asked):
        storage: Any = torch.UntypedStorage
        answer = asked(storage(0), where)
        asked = None if answer is None else answer.device
    made = torch.empty_strided(shape, stride, dtype=dtype, device=accelerator.reads_from(str(asked or where)))
    if not is_stand_in(made):
        forget(made)
    return made.requires_grad_(requires_grad)


ANSWERS: dict[Any, Answer] = {
    _Tensor.is_meta.__get__: _is_meta,
    **dict.fromkeys(
        (_Tensor.item, _Tensor.__bool__, _Tensor.__float__, _Tensor.__int__, _Tensor.__index__, torch.is_nonzero),
        _number,
    ),
    **dict.fromkeys((torch.isfinite, _Tensor.isfinite), _finite),
    **dict.fromkeys((torch.all, _Tensor.all, torch.any, _Tensor.any), _of_all),
    _Tensor.tolist: _tolist,
    _Tensor.numpy: _numpy,
    _Tensor.__array__: _numpy,
    _Tensor.__repr__: _shown,
    _Tensor.__format__: _shown,
    _Tensor.data.__set__: _set_data,
    _Tensor.data_ptr: _address,
    **dict.fromkeys((torch.equal, _Tensor.equal, torch.allclose, _Tensor.allclose), _same),
}
"""Function of torch -> what a rank whose tensors have no values calls in its place, before it looks at devices."""


def taints(func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """Return what a call yielded, a stand-in where it was given a number that was not computed."""
    if any(map(is_number, args)) or any(map(is_number, kwargs.values())):
        changed = args[0] if func.__name__ == "__setitem__" else out
        if isinstance(changed, torch.Tensor):
            forget(changed)
    return out


@contextmanager
def installed() -> Iterator[None]:
    """Let parameters of ranks have no values, and files with shapes be read; leave torch as it was."""
    parameter: Any = torch.nn.Parameter
    storage: Any = torch.UntypedStorage
    module: Any = torch
    real_clear, real_reduce = torch.clear_autocast_cache, _Tensor.__reduce_ex__
    real_new, real_load, real_address = parameter.__new__, torch.load, storage.data_ptr

    def new(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
        rank = current_rank()
        has_values = type(data) in (_Tensor, parameter) and not (data.is_meta or is_stand_in(data))
        if rank is not None and has_values and has_fractions(data):
            data = placed(rank.process.accelerator, data) if _on(rank, data) else forget(like(data))
        return real_new(cls, data, requires_grad)

    def reduce(tensor: Any, protocol: Any) -> Any:
        rank = current_rank()
        if rank is None or type(tensor) is not _Tensor or not is_stand_in(tensor):
            return real_reduce(tensor, protocol)
        return _pickled(rank.process.accelerator, tensor)

    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        rank = current_rank()
        if rank is None:
            return real_load(f, map_location, *args, **kwargs)
        accelerator = rank.process.accelerator
        before, accelerator.loads_to = accelerator.loads_to, map_location
        try:
            return real_load(f, map_location, *args, **kwargs)
        finally:
            accelerator.loads_to = before

    def forget_casts() -> None:
        real_clear()
        rank = current_rank()
        if rank is not None:
            rank.process.accelerator.casts.clear()

    def address(of: Any) -> Any:
        return id(of) if of.nbytes() and stands(of) else real_address(of)

    with ExitStack() as stack:
        parameter.__new__ = new
        stack.callback(setattr, parameter, "__new__", real_new)
        _Tensor.__reduce_ex__ = reduce
        stack.callback(setattr, _Tensor, "__reduce_ex__", real_reduce)
        module.load = load
        stack.callback(setattr, module, "load", real_load)
        module.clear_autocast_cache = forget_casts
        stack.callback(setattr, module, "clear_autocast_cache", real_clear)
        storage.data_ptr = address
        stack.callback(delattr, storage, "data_ptr")
        torch.serialization.add_safe_globals([rebuilt])
        yield


def _on(rank: Any, tensor: torch.Tensor) -> bool:
    return bool(rank.process.accelerator.is_on(tensor)) or holds(tensor.untyped_storage())
