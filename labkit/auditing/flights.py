"""Buffers of collectives that are under way: they must be left alone until somebody has waited."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from labkit.auditing.bits import tensors_of
from labkit.simulator.operators import Operator, written_by
from labkit.simulator.rounds import Part
from labkit.simulator.state import memory_of


class Flights:
    """Those of one rank.

    Attributes:
        any: Whether there are any.
    """

    def __init__(self) -> None:
        self.any = False
        self._parts: dict[int, tuple[Part, str, list[tuple[int, int, int, bool]]]] = {}
        self._noted: set[int] = set()

    def add(self, part: Part, source: str) -> None:
        """Take note of a collective that is called."""
        extents = []
        for receiving, tensors in ((False, part.inputs), (True, part.outputs)):
            for one in tensors:
                extent = memory_of(one)
                if extent is not None:
                    extents.append((*extent, receiving))
        self._parts[id(part)] = (part, source, extents)
        self.any = True

    def remove(self, part: Part) -> None:
        """Let go of a collective that is complete."""
        self._parts.pop(id(part), None)
        self.any = bool(self._parts)

    def touched(
        self, known: Operator, args: Any, kwargs: Any, line: Callable[[], str]
    ) -> tuple[str, str, str, str] | None:
        """Return what an operator does that it must not: the kind, the call, its line and the operator's; or None."""
        written = {id(one) for one in written_by(known.func, args, kwargs)}
        for tensor in tensors_of([args, kwargs]):
            extent = memory_of(tensor)
            if extent is None:
                continue
            storage, start, end = extent
            for key, (part, source, extents) in self._parts.items():
                for where, begin, finish, receiving in extents:
                    writes = id(tensor) in written
                    if where != storage or finish <= start or end <= begin or not (receiving or writes):
                        continue
                    if key in self._noted:
                        continue
                    self._noted.add(key)
                    return "changed_in_flight" if writes else "used_before_wait", part.row.kind, source, line()
        return None
