"""What crosses from rank to rank in a remote call: by value, as torch sends it between processes.

Tensors travel as copies of their own elements, outside the pickle and outside autograd. Functions and classes of the
learner travel as their names and become the receiver's own; those that have no name of their own at the top level of a
module are refused, as pickle refuses them between processes.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch

from labkit.simulator.state import Process
from labkit.torch_port.operators import uncounted


@dataclass(frozen=True)
class Packed:
    """A value on its way.

    Attributes:
        data: The pickle.
        tensors: Copies of the tensors in it.
        objects: What a process has one of whoever asks, such as torch.add.
    """

    data: bytes
    tensors: tuple[torch.Tensor, ...]
    objects: tuple[Any, ...]

    @property
    def bytes(self) -> int:
        """Bytes on the wire."""
        return len(self.data) + sum(tensor.numel() * tensor.element_size() for tensor in self.tensors)


@dataclass(frozen=True)
class Reference:
    """A remote reference on its way: whose it is, and which."""

    owner: int
    key: tuple[int, int]


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, process: Process, as_reference: Callable[[object], Reference | None]) -> None:
        super().__init__(file, protocol=5)
        self._process, self._as_reference = process, as_reference
        self.copies: list[torch.Tensor] = []
        self.objects: list[Any] = []
        self._seen: dict[int, tuple[int, torch.Tensor]] = {}  # the tensor is kept, so that its id is its own

    def persistent_id(self, value: Any) -> Any:
        kind = type(value)
        if kind is torch.Tensor:
            return self._tensor(value)
        if isinstance(value, FunctionType | type):
            return self._named(value)
        if kind is BuiltinFunctionType:
            self.objects.append(value)
            return ("object", len(self.objects) - 1)
        reference = self._as_reference(value)
        return None if reference is None else ("reference", reference.owner, reference.key)

    def _tensor(self, tensor: torch.Tensor) -> Any:
        if id(tensor) not in self._seen:
            if tensor.device.type not in ("cpu", "meta"):
                raise RuntimeError(
                    f"A tensor on {tensor.device} came to a virtual rank, which computes on the CPU or on meta."
                )
            self._seen[id(tensor)] = (len(self.copies), tensor)
            with uncounted(), torch.no_grad():
                copy = tensor.detach().clone()
            self.copies.append(copy.requires_grad_(tensor.requires_grad))
        return ("tensor", self._seen[id(tensor)][0])

    def _named(self, value: Any) -> Any:
        module, name = str(value.__module__), str(value.__qualname__)
        if module not in self._process.namespaces or _walk(sys.modules.get(module), name) is value:
            return None  # of a library: all ranks have the same one
        if "<locals>" in name:
            inside = name.rpartition(".<locals>.")[0]
            raise AttributeError(
                f"Can't pickle local object {name!r}: a remote call sends functions and classes by name, and this one "
                f"is defined inside {inside}. Define it at the top level of a cell or module."
            )
        if _find(self._process, module, name) is value:
            return ("name", module, name)
        for tracker, known in self._process.classes.items():
            if known is value:
                return ("class", tracker, name)
        raise pickle.PicklingError(
            f"Can't pickle {value!r}: a remote call sends functions and classes by name, and {name} is not what "
            f"{module}.{name} names."
        )


class _Unpickler(pickle.Unpickler):
    def __init__(self, packed: Packed, process: Process, of_reference: Callable[[Reference], object]) -> None:
        super().__init__(io.BytesIO(packed.data))
        self._packed, self._process, self._of_reference = packed, process, of_reference

    def persistent_load(self, identity: Any) -> Any:
        kind, *rest = identity
        if kind == "tensor":
            return self._packed.tensors[rest[0]]
        if kind == "object":
            return self._packed.objects[rest[0]]
        if kind == "reference":
            return self._of_reference(Reference(*rest))
        found = self._process.classes.get(rest[0]) if kind == "class" else _find(self._process, *rest)
        if found is None:
            raise AttributeError(
                f"{rest[1]} is not known here. A remote call sends the names of functions and classes: define them on "
                "caller and callee."
            )
        return found


def _find(process: Process, module: str, name: str) -> Any:
    first, _, rest = name.partition(".")
    found = process.namespaces.get(module, {}).get(first)
    return _walk(found, rest) if rest else found


def _walk(found: Any, name: str) -> Any:
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def pack(value: object, process: Process, as_reference: Callable[[object], Reference | None]) -> Packed:
    """Return a value as it goes on its way.

    Args:
        value: Anything that pickle can carry between processes.
        process: The sender's.
        as_reference: Returns what stands for a remote reference, None for anything else.

    Raises:
        AttributeError: If a function or class has no name of its own.
        TypeError: If something cannot be pickled.
    """
    with io.BytesIO() as file:
        pickler = _Pickler(file, process, as_reference)
        pickler.dump(value)
        return Packed(file.getvalue(), tuple(pickler.copies), tuple(pickler.objects))


def unpack(packed: Packed, process: Process, of_reference: Callable[[Reference], object]) -> Any:
    """Return the value that arrived, once: its tensors are those that travelled.

    Args:
        packed: What pack() made.
        process: The receiver's.
        of_reference: Returns the receiver's remote reference.

    Raises:
        AttributeError: If a name is not known here.
    """
    return _Unpickler(packed, process, of_reference).load()
