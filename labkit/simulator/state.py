"""What a run is made of while it runs: the ranks, and what they share."""

from __future__ import annotations

import itertools
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import torch

from labkit.simulator.clock import Event, RankClock, Scheduler, Waiting, Waits
from labkit.simulator.cluster import Cluster
from labkit.simulator.fold import Fold
from labkit.simulator.network import Network
from labkit.simulator.observer import Observer
from labkit.simulator.record import Noted, RankRecord, Row, Sources, at
from labkit.simulator.stream_queue import StreamQueue
from labkit.simulator.streams import DeviceStreams, HostCallback, StreamEvent
from labkit.simulator.what_if import WhatIf
from labkit.timeline.span import Lane
from labkit.torch_port.backward import EndOfBackward, in_backward
from labkit.torch_port.group_tables import new_world

_thread = threading.local()
_STRIDED = torch.strided


class InFlight(Protocol):
    """A buffer that must be left alone: what is sent must not be written, and where something comes nothing be read.

    Attributes:
        start: Address of its first byte.
        end: One past its last.
        row: The span of the call it was given to.
        problem_noted: Whether it was not left alone.
    """

    start: int
    end: int
    row: Row
    problem_noted: bool

    @property
    def sending(self) -> bool:
        """Whether what is in it is being sent."""

    @property
    def receiving(self) -> bool:
        """Whether it is being received into."""

    def call(self) -> str:
        """Return what a report calls the call."""


@dataclass(eq=False)
class Process:
    """What the threads of one rank share, as those of one process do.

    Attributes:
        threaded: Whether more than one thread may be at work: then each lets those behind it in time go first.
        classes: The rank's copies of the learner's classes (labkit.simulator.by_value).
        namespaces: Module name -> the rank's copy of the module's globals, for what is found by its name.
        started: The threads it started (labkit.simulator.threads).
        named: How many of them have a name made of a number.
        locks: Its own in place of those that a library keeps one of for the whole process.
        logging: What it set of loggers (labkit.simulator.own_logging).
        backward_end: Whether its backward pass has come to what is called at the end.
        rpc: Its end of torch.distributed.rpc (labkit.simulator.rpc_agent), None while that is not initialised.
        rpc_rounds: How often init_rpc was called.
        accelerator: Its virtual CUDA device (labkit.simulator.accelerator), None where it has none.
        stepping: Whether an optimizer takes its step (labkit.simulator.phases).
        device: What its device does and is still to do (labkit.simulator.streams), None where that is one with the
            program.
        owed: Handles that were waited for before what they yield was known (labkit.simulator.stream_work).
        promises: What keeps the futures that are to be complete when the backward pass ends, in order.
    """

    threaded: bool = False
    classes: dict[str, type] = field(default_factory=dict)
    namespaces: dict[str, dict[str, Any]] = field(default_factory=dict)
    started: list[Any] = field(default_factory=list)
    named: int = 0
    locks: dict[int, Any] = field(default_factory=dict)
    logging: dict[tuple[Any, str], Any] = field(default_factory=dict)
    backward_end: EndOfBackward = field(default_factory=EndOfBackward)
    rpc: Any = None
    rpc_rounds: int = 0
    accelerator: Any = None
    stepping: bool = False
    device: DeviceStreams | None = None
    owed: list[Any] = field(default_factory=list)
    promises: dict[Callable[[], None], None] = field(default_factory=dict)


@dataclass
class VirtualRank:
    """One rank, or one of its threads: those share all but the clock.

    Attributes:
        rank: Its number.
        simulation: The run it belongs to.
        clock: Its time.
        record: What it did.
        world: torch's table of its process groups.
        in_flight: Address of a storage -> buffers in it that are in flight.
        streams: Group -> when the last collective of this rank on that group was complete.
        stream: The stream that this thread has chosen (labkit.simulator.cuda_events), None for the one there is.
        jitter: Draws how much longer its operators take.
        process: What its threads share besides.
        roofline: Counts the time of its operators (labkit.simulator.roofline).
    """

    rank: int
    simulation: Simulation
    clock: RankClock
    record: RankRecord
    world: dict[str, Any] = field(default_factory=new_world)
    in_flight: dict[int, list[InFlight]] = field(default_factory=dict)
    streams: dict[str, int] = field(default_factory=dict)
    stream: Any = None
    jitter: random.Random = field(default_factory=random.Random)
    process: Process = field(default_factory=Process)
    roofline: Any = None

    @property
    def now_ns(self) -> int:
        """Its time."""
        return self.clock.now_ns

    @property
    def device(self) -> DeviceStreams:
        """Its device, where that computes beside the host."""
        assert self.process.device is not None
        return self.process.device

    def turn(self) -> None:
        """Let ranks that stand earlier in time run first."""
        self.simulation.scheduler.turn(self.clock.number)

    def wait(self, event: Event, waiting: Waits) -> None:
        """Return once the event has happened, at its time or later."""
        self.simulation.scheduler.wait(self.clock.number, event, waiting)

    def spend(self, duration_ns: int) -> None:
        """Let time pass; where the rank has more threads, those that stand earlier in time go first."""
        self.clock.now_ns += duration_ns
        if self.process.threaded and not in_backward():  # C++ holds locks there that other threads may need
            self.turn()

    def queue(self) -> StreamQueue:
        """Return where what this thread issues goes; for ranks whose device computes beside the host."""
        return self.device.default if self.stream is None else self.stream.queue

    def meet(self, queue: StreamQueue | None = None, call: str = "synchronize") -> None:
        """Let the time pass until the device has done what was issued to a stream, to the current one if none is given.

        Args:
            queue: The stream.
            call: What a report calls the wait.
        """
        device = self.process.device
        if device is not None:
            queue = self.queue() if queue is None else queue
            self.wait_for(device.record_event(queue, self.now_ns), call)

    def wait_for(self, event: StreamEvent, call: str) -> None:
        """Let the time pass until an event of the device has happened."""
        device = self.device
        source, _ = self.simulation.sources.find(sys._getframe(1))

        def peers() -> list[int]:
            stands = device.standing(event.queue)
            return [] if stands is None else stands.peers()

        def text() -> str:
            stands = device.standing(event.queue)
            return call if stands is None else f"{call}; its device stands in {stands.text()}{at(stands.source)}"

        self.wait(event, Waiting(call, peers, text, source))

    def drain(self) -> None:
        """Let the time pass until the device has done what the program issued, as a process does before it ends.

        Communication that nothing waits for is not in it: what nobody joined is found at the end of the run.
        """
        device = self.process.device
        if device is not None:
            for event in [device.record_event(queue, self.now_ns) for queue in device.chosen]:
                self.wait_for(event, "the end of its program")

    def noted(self, call: Callable[[int], object]) -> None:
        """Have the time at which the device comes to this point of the program told, or the time now."""
        device = self.process.device
        if device is None:
            call(self.now_ns)
        else:
            device.give(self.queue(), HostCallback(self.now_ns, call))

    def sleep(self, duration_ns: int) -> None:
        """Let time pass without work."""
        self.record.add(Row(Lane.HOST, self.now_ns, self.now_ns + duration_ns, "sleep", "sleep"))
        self.spend(duration_ns)

    def problem(self, kind: str, text: str, row: Row) -> None:
        """Note something that is wrong with this span whatever the result is."""
        self.record.problems.append(Noted(kind, self.rank, text, row))


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
        threads: Operating-system threads that ranks started beside their own.
        failed: Called when such a thread cannot go on, with the rank and the error; ends the run.
        standing_in: Makes what a process has of its own that of a rank for a moment.
        operators: Address of an operator seen so far -> what is known of it (labkit.simulator.operators).
        layers: What a linear layer hangs on -> what is known of it (labkit.simulator.linear).
        draws: Called before a rank uses torch's generator of random numbers, which all ranks have in common.
        rpc: Groups of torch.distributed.rpc under way (labkit.simulator.rpc_agent).
        makers: Every process group of torch's -> the ranks that made it (labkit.simulator.left_open).
        observer: What looks on, None for nobody.
        trial: What may fail (labkit.simulator.trials), None where nothing may.
        notes: What is said of the run when it ends -> the rank that it is about.
        what_if: What is otherwise than the program says, None for nothing.
        fold: Which ranks do not run, because others do the same (labkit.simulator.fold); None where all run.
    """

    cluster: Cluster
    scheduler: Scheduler
    network: Network
    sources: Sources = field(default_factory=Sources)
    ranks: list[VirtualRank] = field(default_factory=list)
    exchange: Any = None
    rounds: Any = None
    flows: Iterator[int] = field(default_factory=itertools.count)
    threads: list[threading.Thread] = field(default_factory=list)
    failed: Callable[[int, BaseException], None] = field(default=lambda rank, error: None)
    draws: Callable[[int], None] = field(default=lambda rank: None)
    standing_in: Callable[[int], AbstractContextManager[None]] = field(default=lambda rank: nullcontext())
    operators: dict[int, Any] = field(default_factory=dict)
    layers: dict[Any, Any] = field(default_factory=dict)
    rpc: Any = None
    makers: dict[Any, set[int]] = field(default_factory=dict)
    observer: Observer | None = None
    trial: Any = None
    notes: dict[str, int] = field(default_factory=dict)
    what_if: WhatIf | None = None
    fold: Fold | None = None

    def add_ranks(self) -> None:
        """Make the ranks."""
        for clock in self.scheduler.clocks:
            jitter = random.Random(f"{self.cluster.seed} rank {clock.rank}")
            self.ranks.append(VirtualRank(clock.rank, self, clock, RankRecord(clock.rank), jitter=jitter))


def memory_of(tensor: torch.Tensor) -> tuple[int, int, int] | None:
    """Return the address of a tensor's storage and its own first and one past its last byte; None without memory."""
    if tensor.is_meta or tensor.layout is not _STRIDED:
        return None
    num_bytes = tensor.nbytes
    if not num_bytes:
        return None
    if not tensor.is_contiguous():
        numel = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        num_bytes = numel * tensor.element_size()
    start = tensor.data_ptr()
    return tensor.untyped_storage().data_ptr(), start, start + num_bytes


current_rank: Callable[[], VirtualRank | None] = partial(getattr, _thread, "rank", None)
"""Returns the rank whose thread calls, None outside a virtual run; asked a dozen times for each message."""


def the_rank() -> VirtualRank:
    """Return the rank whose thread calls; only ranks get here."""
    rank = current_rank()
    assert rank is not None
    return rank


def become(rank: VirtualRank | None) -> None:
    """Make the calling thread that rank's from now on."""
    _thread.rank = rank
    _thread.world = None if rank is None else rank.world


@contextmanager
def acting_as(rank: VirtualRank | None) -> Iterator[None]:
    """Let the calling thread be that rank's for a moment."""
    before = current_rank()
    become(rank)
    try:
        yield
    finally:
        become(before)


def outside() -> AbstractContextManager[None]:
    """Let the calling thread be no rank's for a moment: what it makes and waits for is real."""
    return acting_as(None)


current_world: Callable[[], dict[str, Any] | None] = partial(getattr, _thread, "world", None)
"""Returns torch's table of process groups for the rank whose thread calls, or None."""


def communication_row(
    rank: VirtualRank, kind: str, num_bytes: int, group: str, group_size: int, source: str, *, blocking: bool,
    peer: int = -1, tag: int = 0,
) -> Row:  # fmt: skip
    """Return the row of a call that begins now, or once it is posted, added to the rank's record."""
    post_ns = rank.simulation.cluster.link.post_ns
    if post_ns:
        rank.spend(post_ns)
    begin_ns = rank.clock.now_ns
    row = Row(
        Lane.COMMUNICATION, begin_ns, -1, kind, kind, num_bytes, peer, -1, tag, group, group_size, 0, source, blocking
    )
    return rank.record.add(row)
