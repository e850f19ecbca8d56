"""What a run is made of while it runs: the ranks, and what they share."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from labkit.simulator.clock import Event, RankClock, Scheduler, Waiting
from labkit.simulator.cluster import Cluster
from labkit.simulator.network import Network
from labkit.simulator.record import RankRecord, Row, Sources, at
from labkit.simulator.torch_private import new_world
from labkit.timeline.span import Lane, Problem

_thread = threading.local()


@dataclass(eq=False, slots=True)
class InFlight:
    """A buffer that must be left alone: one being sent must not be written, one being received not be read."""

    storage: int
    start: int
    end: int
    receiving: bool
    row: Row
    problem_noted: bool = False

    @property
    def text(self) -> str:
        """What a report calls it."""
        return f"{self.row.kind}{at(self.row.source)}"


@dataclass
class VirtualRank:
    """One rank.

    Attributes:
        rank: Its number.
        simulation: The run it belongs to.
        clock: Its time.
        record: What it did.
        world: torch's table of its process groups.
        in_flight: Address of a storage -> buffers in it that are in flight.
        streams: Group -> when the last collective of this rank on that group was complete.
        jitter: Draws how much longer its operators take.
    """

    rank: int
    simulation: Simulation
    clock: RankClock
    record: RankRecord
    world: dict[str, Any] = field(default_factory=new_world)
    in_flight: dict[int, list[InFlight]] = field(default_factory=dict)
    streams: dict[str, int] = field(default_factory=dict)
    jitter: random.Random = field(default_factory=random.Random)

    @property
    def now_ns(self) -> int:
        """Its time."""
        return self.clock.now_ns

    def turn(self) -> None:
        """Let ranks that stand earlier in time run first."""
        self.simulation.scheduler.turn(self.clock.number)

    def wait(self, event: Event, waiting: Waiting) -> None:
        """Return once the event has happened, at its time or later."""
        self.simulation.scheduler.wait(self.clock.number, event, waiting)

    def spend(self, duration_ns: int) -> None:
        """Let time pass."""
        self.clock.now_ns += duration_ns

    def sleep(self, duration_ns: int) -> None:
        """Let time pass without work."""
        self.record.add(Row(Lane.HOST, self.now_ns, self.now_ns + duration_ns, "sleep", "sleep"))
        self.spend(duration_ns)

    def problem(self, kind: str, text: str) -> None:
        """Note something that is wrong whatever the result is."""
        self.record.problems.append(Problem(kind, self.rank, text))

    def guard(self, tensor: torch.Tensor, row: Row, *, receiving: bool) -> InFlight | None:
        """Watch a buffer until :meth:`release`; None where it has no memory to watch."""
        extent = memory_of(tensor)
        if extent is None:
            return None
        storage, start, end = extent
        flight = InFlight(storage, start, end, receiving, row)
        self.in_flight.setdefault(storage, []).append(flight)
        return flight

    def release(self, flight: InFlight | None) -> None:
        """Stop watching."""
        if flight is not None:
            flights = self.in_flight[flight.storage]
            flights.remove(flight)
            if not flights:
                del self.in_flight[flight.storage]


@dataclass
class Simulation:
    """One run: its ranks and what they share.

    Attributes:
        cluster: The hardware.
        scheduler: Who runs.
        network: The ports.
        sources: Finds the learner's lines.
        ranks: All ranks.
        exchange: Messages posted and not yet matched (labkit.simulator.messages).
        rounds: Collectives under way (labkit.simulator.rounds).
        flows: Numbers messages.
    """

    cluster: Cluster
    scheduler: Scheduler
    network: Network
    sources: Sources = field(default_factory=Sources)
    ranks: list[VirtualRank] = field(default_factory=list)
    exchange: Any = None
    rounds: Any = None
    flows: Iterator[int] = field(default_factory=itertools.count)

    def add_ranks(self) -> None:
        """Make the ranks."""
        for clock in self.scheduler.clocks:
            jitter = random.Random(f"{self.cluster.seed} rank {clock.rank}")
            self.ranks.append(VirtualRank(clock.rank, self, clock, RankRecord(clock.rank), jitter=jitter))


def memory_of(tensor: torch.Tensor) -> tuple[int, int, int] | None:
    """Return the address of a tensor's storage and its own first and one past its last byte; None without memory."""
    if tensor.is_meta or tensor.layout is not torch.strided:
        return None
    numel = tensor.numel()
    if not numel:
        return None
    if not tensor.is_contiguous():
        numel = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    start = tensor.data_ptr()
    return tensor.untyped_storage().data_ptr(), start, start + numel * tensor.element_size()


def current_rank() -> VirtualRank | None:
    """Return the rank whose thread calls, None outside a virtual run."""
    return getattr(_thread, "rank", None)


def the_rank() -> VirtualRank:
    """Return the rank whose thread calls; only ranks get here."""
    rank = current_rank()
    assert rank is not None
    return rank


def become(rank: VirtualRank | None) -> None:
    """Make the calling thread that rank's from now on."""
    _thread.rank = rank


def current_world() -> dict[str, Any] | None:
    """Return torch's table of process groups for the rank whose thread calls, or None."""
    rank = current_rank()
    return None if rank is None else rank.world


def communication_row(
    rank: VirtualRank, kind: str, num_bytes: int, group: str, group_size: int, source: str, *, blocking: bool
) -> Row:
    """Return the row of a call that begins now, added to the rank's record."""
    row = Row(
        Lane.COMMUNICATION, rank.now_ns, -1, kind, kind, num_bytes, group=group, group_size=group_size, source=source,
        blocking=blocking,
    )  # fmt: skip
    return rank.record.add(row)
