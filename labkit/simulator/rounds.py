"""Collectives: every rank of a group brings its part, the last one to come settles values and time for all.

The values are computed from the tensors as they are when the last rank joins, and written to each rank's outputs when
that rank learns that the collective is complete: nobody may rely on anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch

from labkit.simulator.clock import Event
from labkit.simulator.fold import note_values
from labkit.simulator.network import Traffic
from labkit.simulator.record import Row, at
from labkit.simulator.stand_ins import is_stand_in
from labkit.simulator.state import Simulation, VirtualRank
from labkit.simulator.streams import Communication
from labkit.simulator.what_if import FREE, JOINED, WhatIf
from labkit.torch_port.operators import uncounted


@dataclass(frozen=True)
class Group:
    """A group, the same on all its ranks.

    Attributes:
        name: What torch calls it.
        ranks: Global rank of each group rank.
        label: What messages call it.
    """

    name: str
    ranks: tuple[int, ...]
    label: str

    @cached_property
    def key(self) -> str:
        """Tells this group from every other."""
        return f"{self.name}|{','.join(map(str, self.ranks))}"


@dataclass
class Part:
    """What one rank brings to a collective.

    Attributes:
        rank: Who.
        row: Its span.
        signature: What must be the same on all ranks, in words.
        inputs: What it gives.
        outputs: What it takes the result in.
        sizes: Bytes it gives to each group rank, where that varies.
        communication: Its place on a stream of its device, None where the device is one with the program.
    """

    rank: VirtualRank
    row: Row
    signature: str
    inputs: list[torch.Tensor]
    outputs: list[torch.Tensor]
    sizes: list[int] = field(default_factory=list)
    communication: Communication | None = None


Compute = Callable[[list[Part]], Sequence[Sequence[torch.Tensor]]]
"""Returns for each group rank what goes into its outputs."""


@dataclass
class Round:
    """One collective while ranks join it.

    Attributes:
        group: Its group.
        number: How many came before on the group.
        event: Fired when it is complete.
        joined: Fired when all ranks have called it, at no time: from then on results are known.
        late: Group ranks that have called it and whose devices have not come to it.
        settle: Has its time worked out, once everybody has called.
        parts: What each group rank brought.
        results: What goes into the outputs of each group rank.
        has_values: Whether any tensor has values; meta tensors have none to compute.
        checks: Whether computing also checks that the parts fit each other.
        failure: Why it can never be complete, "" while it can.
    """

    group: Group
    number: int
    event: Event = field(default_factory=Event)
    joined: Event = field(default_factory=Event)
    late: set[int] = field(default_factory=set)
    settle: Callable[[], None] | None = None
    parts: dict[int, Part] = field(default_factory=dict)
    results: Sequence[Sequence[torch.Tensor]] = ()
    has_values: bool = True
    checks: bool = False
    failure: str = ""

    def missing(self) -> list[int]:
        """Return the global ranks that have not joined; those whose devices have not, where all have."""
        absent = [rank for place, rank in enumerate(self.group.ranks) if place not in self.parts]
        return absent or [self.group.ranks[place] for place in sorted(self.late)]

    def result_of(self, group_rank: int) -> Sequence[torch.Tensor]:
        """Return what goes into this rank's outputs, once."""
        return self.results[group_rank]


class Rounds:
    """The collectives under way."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._open: dict[tuple[str, int], Round] = {}
        self._lost: dict[int, str] = {}

    def join(
        self, group: Group, number: int, group_rank: int, part: Part, compute: Compute,
        traffic: Callable[[list[Part]], Traffic],
    ) -> Round:  # fmt: skip
        """Return the collective, which this rank has now joined.

        Args:
            group: The group.
            number: How many collectives this rank joined on the group before.
            group_rank: The rank's number in the group.
            part: What it brings.
            compute: How results follow from all parts.
            traffic: What goes over the wire, from all parts.

        Raises:
            RuntimeError: If it is not the collective that the others called.
        """
        key = (group.key, number)
        round_ = self._open.get(key)
        if round_ is None:
            round_ = self._open[key] = Round(group, number, checks=part.row.kind.startswith("all_to_all"))
        elif round_.parts and not round_.failure:
            first = next(iter(round_.parts.values()))
            if first.signature != part.signature:
                self._fail(round_, _mismatch_text(group, number, first, part), part)
        if self._lost and part.communication is None and not round_.failure:
            gone = [rank for rank in group.ranks if rank in self._lost]
            round_.failure = self._lost[gone[0]] if gone else ""
        if round_.failure:
            part.row.failed = True
            raise RuntimeError(round_.failure)
        fold = self._simulation.fold
        for place in (group_rank,) if fold is None else fold.places(group, part.rank.rank):
            round_.parts[place] = part
        if part.communication is not None:
            round_.late.add(group_rank)
        if len(round_.parts) == len(group.ranks):
            del self._open[key]  # nobody else comes
            self._compute(round_, compute, traffic)
        return round_

    def reached(self, round_: Round, group_rank: int) -> None:
        """Note that the device of a rank that has called the collective has come to it."""
        round_.late.discard(group_rank)
        if round_.settle is not None and not round_.late:
            round_.settle()

    def unfinished(self) -> list[Round]:
        """Return the collectives that not all ranks have joined."""
        return [self._open[key] for key in sorted(self._open) if not self._open[key].failure]

    def give_up(self, round_: Round, text: str, part: Part) -> None:
        """Let a collective fail that a rank has waited for too long: for those who wait, and those who come later."""
        if not round_.failure and round_.event.ready_ns is None:
            self._fail(round_, text, part)

    def lost(self, rank: int, now_ns: int, text: str) -> None:
        """Let the collectives of a rank whose process has ended fail, as gloo's do; on NCCL's streams others wait."""
        self._lost[rank] = text
        for round_ in self.unfinished():
            parts = [one for one in round_.parts.values() if one.rank.rank != rank]
            if rank in round_.group.ranks and parts and all(part.communication is None for part in parts):
                self._fail(round_, text, parts[0], now_ns)

    def _fail(self, round_: Round, text: str, part: Part, now_ns: int = 0) -> None:
        """Let those who wait for the collective, and those who come later, have the error too."""
        round_.failure = text
        for other in round_.parts.values():
            other.row.failed = True
        scheduler = self._simulation.scheduler
        if round_.joined.ready_ns is None:
            scheduler.fire(round_.joined, 0)
        scheduler.fire(round_.event, max(now_ns, *(one.row.start_ns for one in (part, *round_.parts.values()))))

    def _compute(self, round_: Round, compute: Compute, traffic: Callable[[list[Part]], Traffic]) -> None:
        parts = [round_.parts[place] for place in range(len(round_.group.ranks))]
        round_.has_values = not (all(map(_is_meta, parts)) or any(map(_stands_in, parts)))
        if round_.has_values or round_.checks:
            try:
                with uncounted(), torch.no_grad():
                    round_.results = compute(parts)
            except Exception as error:
                first = parts[0]
                called = f"{first.signature}{at(first.row.source)}"
                text = str(error) if isinstance(error, RuntimeError) else f"{type(error).__name__}: {error}"
                self._fail(round_, f"{called} cannot be computed, on any rank: {text}", first)
                raise RuntimeError(round_.failure) from error
        planned, scheduler = traffic(parts), self._simulation.scheduler
        if self._simulation.fold is not None:
            self._simulation.fold.check(self._simulation.cluster, round_.group.ranks, planned.edges, all_cards=True)
            if round_.has_values:
                note_values(round_, parts[-1].rank, parts[-1].row.kind, parts[-1].row.source)

        def settle() -> None:
            round_.settle = None
            begins_ns = max(part.row.start_ns for part in parts)
            scheduler.act(begins_ns, lambda: self._settle(round_, parts, planned, begins_ns))

        scheduler.fire(round_.joined, 0)
        round_.settle = settle
        if not round_.late:
            settle()

    def _settle(self, round_: Round, parts: list[Part], traffic: Traffic, now_ns: int) -> None:
        if round_.failure:  # a rank gave up before the last one came
            return
        key, scheduler = round_.group.key, self._simulation.scheduler
        # On each rank the collectives of a group run one after the other, as on NCCL's stream.
        free_ns = max(part.rank.streams.get(key, 0) for part in parts)
        if free_ns > now_ns:
            scheduler.act(free_ns, lambda: self._settle(round_, parts, traffic, free_ns))
            return
        if self._simulation.network.is_cut(traffic.edges):
            return  # its bytes never come
        if (what_if := self._simulation.what_if) is not None:
            self._settle_otherwise(round_, parts, traffic, now_ns, what_if)
            return
        begins_ns, ends_ns = self._simulation.network.collective(traffic, now_ns)
        self._complete(round_, parts, begins_ns, ends_ns)

    def _settle_otherwise(
        self, round_: Round, parts: list[Part], traffic: Traffic, now_ns: int, what_if: WhatIf
    ) -> None:
        """Settle a collective in a run in which one thing is otherwise."""
        network, kind = self._simulation.network, what_if.collective(parts)
        if kind == JOINED:
            traffic = replace(traffic, latency_ns=0, fill=0.0)
        if kind != FREE:
            self._complete(round_, parts, *network.collective(traffic, now_ns))
            return
        for part in parts:
            part.row.end_ns = part.row.start_ns
            if part.communication is not None:
                part.rank.device.finish(part.communication, part.row.start_ns, part.row.start_ns)
        self._simulation.scheduler.fire(round_.event, 0)

    def _complete(self, round_: Round, parts: list[Part], begins_ns: int, ends_ns: int) -> None:
        key, scheduler = round_.group.key, self._simulation.scheduler
        for place, part in enumerate(parts):
            if part.rank.rank != round_.group.ranks[place]:
                continue  # it stands for a rank that does not run
            part.row.end_ns, part.row.moves = ends_ns, ((begins_ns, ends_ns),)
            part.rank.streams[key] = ends_ns
            if part.communication is not None:
                part.rank.device.finish(part.communication, begins_ns, ends_ns)
        scheduler.fire(round_.event, ends_ns)


def _is_meta(part: Part) -> bool:
    tensors = part.inputs if part.inputs is part.outputs else (*part.inputs, *part.outputs)
    return bool(tensors) and all(tensor.is_meta for tensor in tensors)


def _stands_in(part: Part) -> bool:
    """Return whether a part has no values that it should have: its rank's run has shapes only."""
    accelerator = part.rank.process.accelerator
    return accelerator is not None and accelerator.shapes and any(map(is_stand_in, part.inputs))


def _mismatch_text(group: Group, number: int, first: Part, part: Part) -> str:
    return (
        f"Rank {part.rank.rank} called {part.signature}{at(part.row.source)} as collective {number + 1} of "
        f"{group.label}, where rank {first.rank.rank} called {first.signature}{at(first.row.source)}. "
        "All ranks of a group must call the same collectives in the same order, with the same sizes and dtypes."
    )
