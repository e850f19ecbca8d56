"""Calls of torch that name a device, or ask for one, answered for a rank with a virtual CUDA device."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from labkit.simulator import shapes_mode
from labkit.simulator.accelerator import HOST, Accelerator, is_pinned, pin
from labkit.simulator.cuda_autocast import in_lower_precision, in_the_dtype_of_cuda
from labkit.simulator.memory_error import beyond_the_host
from labkit.simulator.stand_ins import forget, is_stand_in
from labkit.simulator.state import VirtualRank, current_rank
from labkit.simulator.storages import tensors_in
from labkit.torch_port.devices import FunctionMode, answering, default_device, makes_from_nothing, parse_to

_Tensor: Any = torch.Tensor
_MAKERS = makes_from_nothing()
_READ_AT_ONCE = (
    _Tensor.tolist, _Tensor.__repr__, _Tensor.__format__, torch.equal, _Tensor.equal, torch.allclose, _Tensor.allclose,
)  # fmt: skip
"""What hands values to the program without an operator that says so."""
Answer = Callable[["DeviceMode", Any, tuple[Any, ...], dict[str, Any]], Any]


class DeviceMode(FunctionMode):  # type: ignore[misc]
    """Maps devices for one thread of a rank while it is entered."""

    def __init__(self, accelerator: Accelerator) -> None:
        """Answer for this device."""
        super().__init__()
        self.accelerator = accelerator
        self.of_devices: dict[Any, Answer] = ANSWERS
        answers = ANSWERS | shapes_mode.ANSWERS if accelerator.shapes else ANSWERS
        self._answers = answers | {func: _after_the_device(answers.get(func, _called)) for func in _READ_AT_ONCE}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Return what the call returns on a host with CUDA."""
        kwargs = kwargs or {}
        answer = self._answers.get(func)
        if answer is not None:
            return answer(self, func, args, kwargs)
        if self.accelerator.shapes:
            return shapes_mode.taints(func, args, kwargs, self._made(func, args, kwargs))
        return self._made(func, args, kwargs)

    def _made(self, func: Any, args: Any, kwargs: Any) -> Any:
        device = kwargs.get("device")
        if device is None:
            if func not in _MAKERS:
                if torch.is_autocast_enabled("cuda"):
                    args, kwargs = in_the_dtype_of_cuda(func, args, kwargs)
                    if self.accelerator.shapes:
                        args, kwargs = in_lower_precision(func, args, kwargs, self.accelerator.casts)
                return func(*args, **kwargs)
            device = default_device() or HOST
        if not isinstance(device, int) and torch.device(device).type == "meta":
            with self.accelerator.making_meta():
                return func(*args, **kwargs)
        on_device = self.accelerator.wants(device)
        pinned = bool(kwargs.get("pin_memory"))
        with self.accelerator.placing(on_device):
            try:
                made = func(*args, **kwargs | {"device": HOST} | ({"pin_memory": False} if pinned else {}))
            except RuntimeError as error:
                raise (beyond_the_host(error, func.__name__) if on_device else None) or error from None
        if isinstance(made, torch.Tensor):
            if on_device:
                self.accelerator.put(made)
                if self.accelerator.shapes:
                    made = shapes_mode.placed(self.accelerator, made)
            if pinned:
                pin(made)
        return made

    def moved(self, tensor: torch.Tensor, on_device: bool, options: dict[str, Any]) -> torch.Tensor:
        """Return the tensor on the device or on the host: itself where it is there and nothing else changes."""
        lies_nowhere = tensor.is_meta and not (self.accelerator.shapes and is_stand_in(tensor))
        if lies_nowhere or self.accelerator.is_on(tensor) == on_device:
            moved: torch.Tensor = _Tensor.to(tensor, **options) if options else tensor
            return moved
        with self.accelerator.placing(on_device):
            copied: torch.Tensor = _Tensor.to(tensor, **options | {"copy": True, "device": HOST})
        return copied


def _called(mode: DeviceMode, func: Any, args: Any, kwargs: Any) -> Any:
    return func(*args, **kwargs)


def _after_the_device(answer: Answer) -> Answer:
    """Return what lets the host wait until the device has computed what it reads, and then answers."""

    def answers(mode: DeviceMode, func: Any, args: Any, kwargs: Any) -> Any:
        rank = current_rank()
        if rank is not None and any(map(mode.accelerator.is_on, tensors_in((args, kwargs)))):
            what_if = rank.simulation.what_if
            if what_if is None or not what_if.reads(sys._getframe(2)):
                rank.meet(call=func.__name__)
        return answer(mode, func, args, kwargs)

    return answers


def devices_of(rank: VirtualRank) -> AbstractContextManager[Any]:
    """Return a context in which the calling thread of a rank finds the rank's virtual device, if it has one."""
    accelerator = rank.process.accelerator
    return nullcontext() if accelerator is None or answering(DeviceMode) else DeviceMode(accelerator)


def _where(mode: DeviceMode, func: Any, args: Any, kwargs: Any) -> Any:
    tensor = args[0]
    if mode.accelerator.is_on(tensor):
        return mode.accelerator.device
    return HOST if mode.accelerator.shapes and is_stand_in(tensor) else func(*args)


def _is_cuda(mode: DeviceMode, func: Any, args: Any, kwargs: Any) -> Any:
    return mode.accelerator.is_on(args[0])


def _is_cpu(mode: DeviceMode, func: Any, args: Any, kwargs: Any) -> Any:
    if mode.accelerator.shapes and is_stand_in(args[0]):
        return not mode.accelerator.is_on(args[0])
    return func(*args) and not mode.accelerator.is_on(args[0])


def _get_device(mode: DeviceMode, func: Any, args: Any, kwargs: Any) -> Any:
    return mode.accelerator.number if mode.accelerator.is_on(args[0]) else func(*args)


def _device(mode: DeviceMode, func: Any, args: Any, kwargs: Any) -> Any:
    if len(args) == 1 and isinstance(args[0], int) and not kwargs:
        return func("cuda", args[0])
    return func(*args, **kwargs)


def _to(mode: DeviceMode, func: Any, args: Any, kwargs: Any) -> Any:
    tensor, *rest = args
    options = dict(kwargs)
    device = options.pop("device", None)
    names: tuple[str, ...] = ("dtype", "non_blocking", "copy")
    if rest and isinstance(rest[0], torch.Tensor):
        other = rest.pop(0)
        device = mode.accelerator.device if mode.accelerator.is_on(other) else other.device
        options["dtype"], names = other.dtype, names[1:]
    elif (other := options.pop("other", None)) is not None:
        device = mode.accelerator.device if mode.accelerator.is_on(other) else other.device
        options["dtype"] = other.dtype
    elif rest and (rest[0] is None or isinstance(rest[0], str | int | torch.device)):
        device = rest.pop(0)
    options |= {name: value for name, value in zip(names, rest, strict=False) if value is not None}
    if device is None or (not isinstance(device, int) and torch.device(device).type not in ("cuda", "cpu")):
        with mode.accelerator.making_meta() if device is not None else nullcontext():
            return func(tensor, **options | ({} if device is None else {"device": device}))
    return mode.moved(tensor, mode.accelerator.wants(device), options)


def _cuda(mode: DeviceMode, func: Any, args: Any, kwargs: Any) -> Any:
    device = args[1] if len(args) > 1 else kwargs.get("device")
    accelerator = mode.accelerator
    return mode.moved(args[0], accelerator.wants(accelerator.index(device)), _layout(kwargs))


def _cpu(mode: DeviceMode, func: Any, args: Any, kwargs: Any) -> Any:
    return mode.moved(args[0], False, _layout(kwargs))


def _layout(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {"memory_format": kwargs["memory_format"]} if kwargs.get("memory_format") is not None else {}


def _pin_memory(mode: DeviceMode, func: Any, args: Any, kwargs: Any) -> Any:
    if mode.accelerator.is_on(args[0]):
        raise RuntimeError("cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned")
    return args[0] if is_pinned(args[0]) else pin(_Tensor.clone(args[0]))


def _numpy(mode: DeviceMode, func: Any, args: Any, kwargs: Any) -> Any:
    if mode.accelerator.is_on(args[0]):
        raise TypeError(
            f"can't convert {mode.accelerator.device} device type tensor to numpy. "
            "Use Tensor.cpu() to copy the tensor to host memory first."
        )
    return func(*args, **kwargs)


def _type(mode: DeviceMode, func: Any, args: Any, kwargs: Any) -> Any:
    dtype = args[1] if len(args) > 1 else kwargs.get("dtype")
    if dtype is None:
        name: str = func(args[0])
        return name.replace("torch.", "torch.cuda.", 1) if mode.accelerator.is_on(args[0]) else name
    if "cuda" in str(dtype):
        raise RuntimeError(f"Tensor.type({dtype!r}) is not modelled by the virtual cluster; use .to(device, dtype).")
    return func(*args, **kwargs)


def _parsed(mode: DeviceMode, func: Any, args: Any, kwargs: Any) -> Any:
    """Module.to(1): a number is a CUDA device."""
    kwargs = {name: _numbered(value) if name == "device" else value for name, value in kwargs.items()}
    return func(*map(_numbered, args[:1]), *args[1:], **kwargs)


def _numbered(device: Any) -> Any:
    return torch.device("cuda", device) if isinstance(device, int) and not isinstance(device, bool) else device


def _deepcopy(mode: DeviceMode, func: Any, args: Any, kwargs: Any) -> Any:
    """A copy of the storage, which no operator makes."""
    made = func(*args, **kwargs)
    if mode.accelerator.shapes and is_stand_in(args[0]) and not is_stand_in(made):
        forget(made)
    return mode.accelerator.put(made) if mode.accelerator.is_on(args[0]) else made


ANSWERS: dict[Any, Answer] = {
    _Tensor.device.__get__: _where,
    _Tensor.is_cuda.__get__: _is_cuda,
    _Tensor.is_cpu.__get__: _is_cpu,
    _Tensor.get_device: _get_device,
    torch.device: _device,
    parse_to: _parsed,
    _Tensor.to: _to,
    _Tensor.cuda: _cuda,
    _Tensor.cpu: _cpu,
    _Tensor.pin_memory: _pin_memory,
    _Tensor.is_pinned: lambda mode, func, args, kwargs: is_pinned(args[0]),
    _Tensor.numpy: _numpy,
    _Tensor.__array__: _numpy,
    _Tensor.type: _type,
    _Tensor.__deepcopy__: _deepcopy,
}
