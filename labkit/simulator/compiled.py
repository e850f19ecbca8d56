"""What a program compiles: the operators between two products count as one kernel.

``torch.compile`` joins operators that follow each other into kernels, and leaves matrix products, convolutions and
attention to libraries. Here the program runs as it is, and what it compiled costs what such kernels would: those
operators launch once, read each tensor that was there before once, and write what is still held when the next product
begins. That is their result, and whatever the backward pass keeps; a compiler may keep less. The gradient of what was
compiled counts in the same way. Memory is that of the program as it is, and compiling takes no time.
"""

from __future__ import annotations

import functools
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from labkit.simulator.operators import Operator, written_by
from labkit.simulator.state import current_rank
from labkit.simulator.storages import tensors_in
from labkit.torch_port.backward import next_node_number, node_number
from labkit.torch_port.operators import packet_of

FUSED = "fused"
NOTE = (
    "torch.compile: the operators between two products count as one kernel; memory is that of the program as it is, "
    "and compiling takes no time."
)
_LEFT_AS_IT_IS = ("eager", "aot_eager")
"""Backends of torch.compile that join nothing."""


class _Kernel:
    """Operators of one kernel, while more may join it."""

    def __init__(self, backward: int) -> None:
        self.backward = backward
        self._read: dict[int, int] = {}
        self._made: dict[int, tuple[weakref.ref[Any], int]] = {}

    def add(self, known: Operator, args: Any, kwargs: Any, out: Any) -> None:
        """Let an operator join: what it is given and was not made here is read, what it makes is made here."""
        given = list(tensors_in((*args, *kwargs.values())))
        before = {id(one.untyped_storage()) for one in given}
        for one in given:
            if not self._is_made(one):
                self._note(self._read, one)
        for one in (*written_by(known.func, args, kwargs), *tensors_in((out,))):
            storage = one.untyped_storage()
            if not (self._is_made(one) and id(storage) in before):
                self._made[id(storage)] = (weakref.ref(storage), one.nbytes)

    def _is_made(self, tensor: torch.Tensor) -> bool:
        made = self._made.get(id(tensor.untyped_storage()))
        return made is not None and made[0]() is not None

    @staticmethod
    def _note(of: dict[int, int], tensor: torch.Tensor) -> None:
        storage = id(tensor.untyped_storage())
        of[storage] = max(of.get(storage, 0), tensor.nbytes)

    def num_bytes(self) -> int:
        """Return the bytes it moves, now that no more operators join it."""
        return sum(self._read.values()) + sum(size for made, size in self._made.values() if made() is not None)


class Fusing:
    """What one rank compiled, and the kernel that its operators join."""

    def __init__(self, charge: Callable[[int, int], None], products: dict[Any, Any]) -> None:
        """Begin with nothing compiled.

        Args:
            charge: Lets the time of a kernel pass, from its bytes and the number of the backward pass.
            products: Operators whose arithmetic torch counts: those that join no kernel.
        """
        self._charge, self._products = charge, products
        self._depth = 0
        self._begins: list[int] = []
        self._ends: list[int] = []
        self._kernel: _Kernel | None = None

    @contextmanager
    def region(self) -> Iterator[None]:
        """Let operators of the body join, and those of its backward pass."""
        first = next_node_number()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            self.end()
            last = next_node_number()
            if not self._depth and last > first:
                if self._ends and self._ends[-1] == first:
                    self._ends[-1] = last
                else:
                    self._begins.append(first)
                    self._ends.append(last)

    def takes(self, known: Operator, args: Any, kwargs: Any, out: Any, backward: int) -> bool:
        """Return whether an operator that just ran joins a kernel; where it does not, the one under way has ended."""
        compiled = self._is_compiled(node_number()) if backward != -1 and not self._depth else self._depth > 0
        if not compiled or known.func.namespace != "aten" or packet_of(known.func) in self._products:
            self.end()
            return False
        if self._kernel is not None and self._kernel.backward != backward:
            self.end()
        if self._kernel is None:
            self._kernel = _Kernel(backward)
        self._kernel.add(known, args, kwargs, out)
        return True

    def end(self) -> None:
        """Let the kernel under way take its time."""
        kernel, self._kernel = self._kernel, None
        if kernel is not None:
            self._charge(kernel.num_bytes(), kernel.backward)

    def _is_compiled(self, node: int) -> bool:
        place = bisect_right(self._begins, node)
        return place > 0 and node < self._ends[place - 1]


def compiled(function: Callable[..., Any], note: Callable[[str], None], options: dict[str, Any]) -> Callable[..., Any]:
    """Return a function whose operators count as compiled where a virtual rank calls it."""
    note(NOTE)
    if options.get("disable") or options.get("backend") in _LEFT_AS_IT_IS:
        return function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        rank = current_rank()
        fusing = None if rank is None or rank.roofline is None else rank.roofline.fusing()
        if fusing is None:
            return function(*args, **kwargs)
        with fusing.region():
            return function(*args, **kwargs)

    return call
