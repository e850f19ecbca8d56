"""Stand-ins: tensors with a shape, a dtype and a place, and without values; and the numbers that are read from them.

A run with shapes=True computes no values of parameters, activations and gradients. Such a tensor is one on meta that
says it is on the rank's device, or on its host. A small tensor that has values and is written to from a stand-in loses
them: it is a stand-in from then on, too. Whoever reads a number gets :data:`READS_AS` of its dtype.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from labkit.simulator.record import short
from labkit.simulator.state import current_rank
from labkit.simulator.storages import holds, storages_of

_STANDS = "labkit_stands_in"
_SAYS_YES = "labkit_says_yes"
SHAPES_ONLY = "shapes only: "
"""How begins what a run says of values that were not computed."""
MOST_WITH_VALUES = 1 << 20
"""Elements up to which a tensor of the device that is computed from data keeps its values, if they are no fractions."""
MOST_OF_THE_HOST = 1 << 16
"""Elements up to which a tensor of fractions that is made on the host has values."""


def reads_as(dtype: torch.dtype) -> float | int | bool | complex:
    """Return what a number that was not computed is read as."""
    if dtype.is_floating_point:
        return 1.0
    return (1 + 0j) if dtype.is_complex else dtype != torch.bool and 1


def read_of(tensor: torch.Tensor) -> float | int | bool | complex:
    """Return what a number of a stand-in is read as: of its dtype, or yes where the question was if all is well."""
    return says_yes(tensor) or reads_as(tensor.dtype)


def says_yes(tensor: torch.Tensor) -> bool:
    """Return whether a tensor of truth values says that what it was made of is finite: it is taken to be."""
    return tensor.dtype == torch.bool and any(_SAYS_YES in vars(storage) for storage in storages_of(tensor))


def affirm(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor, whose truth values are read as yes."""
    for storage in storages_of(tensor):
        setattr(storage, _SAYS_YES, True)
    return tensor


def is_stand_in(tensor: torch.Tensor) -> bool:
    """Return whether a tensor of a rank has no values."""
    return any(stands(storage) for storage in storages_of(tensor))


def stands(storage: Any) -> bool:
    """Return whether a storage has no values: marked so, or on the device without memory of the host."""
    return _STANDS in vars(storage) or (storage.device.type == "meta" and holds(storage))


def forget(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor, whose values count no more."""
    for storage in storages_of(tensor):
        setattr(storage, _STANDS, True)
    return tensor


def like(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the same shape, strides and dtype on meta."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def has_fractions(tensor: torch.Tensor) -> bool:
    """Return whether a tensor's elements are floating-point or complex numbers."""
    return tensor.is_floating_point() or tensor.is_complex()


def was_read(how: str, value: object) -> None:
    """Note on the rank that calls that its program read a number that was not computed."""
    _note(lambda line: f"{line} read a value that was not computed ({how}): it got {value}.")


def decided(how: str) -> None:
    """Note on the rank that calls that its program decided something by such a number."""
    _note(lambda line: f"{line} decided by a value that was not computed ({how}).")


def _note(text: Callable[[str], str]) -> None:
    rank = current_rank()
    if rank is None or rank.process.accelerator is None:
        return
    source, _ = rank.simulation.sources.find(sys._getframe(2))
    rank.process.accelerator.note(SHAPES_ONLY + text(short(source) or "A library"))


def _comparing(kind: type, name: str) -> Any:
    real = getattr(kind, name)

    def compare(self: Any, other: Any) -> Any:
        decided(_SIGNS[name])
        return real(self, other)

    return compare


def _computing(kind: type, name: str) -> Any:
    real = getattr(kind, name)

    def compute(self: Any, *others: Any) -> Any:
        return stand_in_of(real(self, *others))

    return compute


_SIGNS = {"__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">=", "__eq__": "==", "__ne__": "!="}
_ARITHMETIC = (
    *("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__", "__rtruediv__"),
    *("__floordiv__", "__rfloordiv__", "__mod__", "__rmod__", "__pow__", "__rpow__", "__neg__", "__abs__", "__round__"),
)


def _class(kind: type, name: str) -> Any:
    def decide(self: Any) -> bool:
        decided("bool")
        return bool(kind(self))

    members: dict[str, Any] = {"__doc__": f"A {kind.__name__} that was not computed; what is made of it is one, too."}
    members |= {sign: _comparing(kind, sign) for sign in _SIGNS}
    members |= {sign: _computing(kind, sign) for sign in _ARITHMETIC}
    members |= {"__bool__": decide, "__hash__": kind.__hash__, "__reduce__": lambda self: (kind, (kind(self),))}
    members |= {"__module__": __name__, "__repr__": kind.__repr__, "__str__": kind.__repr__}
    return type(name, (kind,), members)


StandInFloat: Any = _class(float, "StandInFloat")
StandInInt: Any = _class(int, "StandInInt")


def stand_in_of(value: Any) -> Any:
    """Return a number that notes what is decided by it; other things as they are."""
    kind = type(value)
    return StandInFloat(value) if kind is float else StandInInt(value) if kind is int else value


def is_number(value: Any) -> bool:
    """Return whether something is a number that was not computed."""
    return type(value) in (StandInFloat, StandInInt)
