"""Tensors of collectives under way: they are the network's until somebody has waited."""

from __future__ import annotations

import weakref
from functools import partial

import torch

from labkit.simulator.record import Row, at
from labkit.simulator.rounds import Part
from labkit.simulator.state import VirtualRank, memory_of


class Lent:
    """One tensor that a collective was given (labkit.simulator.state.InFlight).

    Attributes:
        tensor: Refers to it, until it is given back. Once nobody else has it, its memory may be another's.
        row: The span of the collective.
        storage: Address of the tensor's storage, 0 where it has no memory to watch.
        start: Address of its first byte.
        end: One past its last.
        sending: Whether the rank gives what is in it.
        receiving: Whether the result comes into it.
        problem_noted: Whether it was not left alone.
    """

    __slots__ = ("end", "problem_noted", "receiving", "row", "sending", "start", "storage", "tensor")

    def __init__(self, tensor: torch.Tensor, row: Row, *, sending: bool, receiving: bool) -> None:
        self.tensor: weakref.ref[torch.Tensor] | None = None
        self.row, self.sending, self.receiving = row, sending, receiving
        self.storage, self.start, self.end = memory_of(tensor) or (0, 0, 0)
        self.problem_noted = False

    def call(self) -> str:
        """Return what a report calls the call that it was given to."""
        return f"{self.row.kind}{at(self.row.source)}"


def lend(rank: VirtualRank, part: Part) -> list[Lent]:
    """Return the tensors of a collective that have values, which are in flight from now on, or until they are freed."""
    given, taken = ({id(one): one for one in tensors} for tensors in (part.inputs, part.outputs))
    lent = []
    for key, tensor in {**given, **taken}.items():
        one = Lent(tensor, part.row, sending=key in given, receiving=key in taken)
        if one.storage:
            rank.in_flight.setdefault(one.storage, []).append(one)
            one.tensor = weakref.ref(tensor, partial(_freed, rank, one))
            lent.append(one)
    return lent


def _freed(rank: VirtualRank, one: Lent, _: weakref.ref[torch.Tensor]) -> None:
    give_back(rank, [one])


def give_back(rank: VirtualRank, lent: list[Lent]) -> None:
    """Let the rank have its tensors again."""
    for one in lent:
        if one.tensor is None:
            continue
        one.tensor = None
        flights = rank.in_flight[one.storage]
        flights.remove(one)
        if not flights:
            del rank.in_flight[one.storage]
