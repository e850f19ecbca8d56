"""Devices as torch's Python side knows them: calls that name one, the default, and where a file's tensors go.

A build of torch without CUDA lets a device be named, and ends the process where a tensor pretends to be on one. So
calls are answered before they reach C++, and tensors stay on the CPU.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import overrides, serialization

_context: Any = importlib.import_module("torch.utils._device")
_data_loader: Any = importlib.import_module("torch.utils.data.dataloader")
_overrides: Any = overrides
_serialization: Any = serialization

FunctionMode: Any = overrides.TorchFunctionMode
"""Sees every call of torch's Python API that takes or makes tensors, reading an attribute included."""


parse_to: Any = torch._C._nn._parse_to
"""What ``Module.to`` asks what its arguments mean."""


def makes_from_nothing() -> frozenset[Any]:
    """Return the functions that make a tensor on the default device."""
    return frozenset(_context._device_constructors())


def default_device() -> torch.device | None:
    """Return what ``torch.set_default_device`` or ``with torch.device(...)`` chose, None where neither did."""
    for mode in reversed(_overrides._get_current_function_mode_stack()):
        if isinstance(mode, _context.DeviceContext):
            device: torch.device = mode.device
            return device
    return None


def answering(kind: type) -> bool:
    """Return whether a function mode of this kind sees calls right now: not inside its own handler."""
    return any(isinstance(mode, kind) for mode in _overrides._get_current_function_mode_stack())


@contextmanager
def located(tag: Callable[[Any], str | None], place: Callable[[Any, str], Any | None]) -> Iterator[None]:
    """Let files say where tensors were, and put them where they are asked for.

    Args:
        tag: Returns what a file says of a storage, or None to leave it to torch.
        place: Returns the storage, put where a location says, or None to leave it to torch.
    """
    serialization.register_package(0, tag, place)
    try:
        yield
    finally:
        registry = _serialization._package_registry
        registry[:] = [entry for entry in registry if entry[1] is not tag]


@contextmanager
def backward_within(context: Callable[[], AbstractContextManager[Any]]) -> Iterator[None]:
    """Run every backward pass inside a context: function modes are off by then, and hooks are the program's own calls.

    Args:
        context: Returns the context, in the thread that asks for the pass.
    """
    module: Any = torch.autograd
    real = module._engine_run_backward

    def run(*args: Any, **kwargs: Any) -> Any:
        with context():
            return real(*args, **kwargs)

    module._engine_run_backward = run
    try:
        yield
    finally:
        module._engine_run_backward = real


@contextmanager
def grouped_by_place(place: Callable[[torch.Tensor], torch.device | None]) -> Iterator[None]:
    """Group the tensors of optimizers and of gradient clipping by where they are said to be.

    Args:
        place: Returns that of a tensor, None to leave it to torch.
    """
    module: Any = torch._C
    real = module._group_tensors_by_device_and_dtype

    def group(lists: Any, with_indices: bool = False) -> Any:
        grouped = real(lists, with_indices)
        return {(_said(found[0], place) or device, dtype): found for (device, dtype), found in grouped.items()}

    module._group_tensors_by_device_and_dtype = group
    try:
        yield
    finally:
        module._group_tensors_by_device_and_dtype = real


def _said(lists: Any, place: Callable[[torch.Tensor], torch.device | None]) -> torch.device | None:
    first = next((one for tensors in lists for one in tensors if one is not None), None)
    return None if first is None else place(first)


NEEDED: dict[str, Callable[[], object]] = {
    "torch._C._nn._parse_to": lambda: torch._C._nn._parse_to,
    "torch.utils._device._device_constructors": makes_from_nothing,
    "torch.utils._device.DeviceContext": lambda: _context.DeviceContext,
    "torch.overrides._get_current_function_mode_stack": lambda: _overrides._get_current_function_mode_stack(),
    "torch.autograd._engine_run_backward": lambda: vars(torch.autograd)["_engine_run_backward"],
    "torch._C._group_tensors_by_device_and_dtype": lambda: vars(torch._C)["_group_tensors_by_device_and_dtype"],
    "torch.serialization._package_registry": lambda: _serialization._package_registry,
}
"""Name -> how it is reached; a test calls each."""
