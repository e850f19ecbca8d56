"""What looks on while a run goes on, and changes nothing: an audit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from labkit.simulator.messages import Posted
    from labkit.simulator.operators import Operator
    from labkit.simulator.record import Row
    from labkit.simulator.rounds import Group, Part
    from labkit.simulator.state import VirtualRank
    from labkit.simulator.what_if import WhatIf


class Observer(Protocol):
    """Is told, in the thread of the rank, what the rank does."""

    @property
    def what_if(self) -> WhatIf | None:
        """What is otherwise than the program says, None for nothing."""

    def operator(self, rank: VirtualRank, known: Operator, args: Any, kwargs: Any, out: Any) -> None:
        """An operator was run."""

    def collective(self, rank: VirtualRank, group: Group, part: Part, op: str) -> None:
        """A collective is called: its parts are as the program gave them, and no result is written."""

    def completed(self, rank: VirtualRank, part: Part) -> None:
        """The rank learnt that a collective is complete; its results are about to be written."""

    def touched(self, rank: VirtualRank, kind: str, row: Row, source: str) -> None:
        """An operator on this line touched a message's buffer before it was free; kind is that of the Problem."""

    def message(self, rank: VirtualRank, posted: Posted) -> None:
        """A send or a receive is posted."""

    def asked(self, rank: VirtualRank, row: Row, number: int, request: list[Any]) -> None:
        """A remote procedure is called, the number-th of the worker: function, arguments, keyword arguments."""

    def answered(self, rank: VirtualRank, row: Row, number: int, value: Any) -> None:
        """The answer to such a call has come."""

    def drew(self, rank: VirtualRank, name: str, out: Any) -> None:
        """A function of numpy.random or random that uses their one generator returned."""
