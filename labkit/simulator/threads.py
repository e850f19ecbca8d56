"""Threads that a rank starts: they have its rank and its surroundings, and a clock of their own.

A thread begins at its creator's time. From then on the threads of a rank overlap in virtual time as on a host with a
core for each, and operators of two of them as on a device that runs both at full speed. Between operators, clocks and
locks a thread is not interrupted; at each of them those that stand earlier in time go first, so that a race between
threads has one outcome, the same in every run.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from labkit.simulator.clock import Abandoned, Event, RankClock, Waiting
from labkit.simulator.device_mode import devices_of
from labkit.simulator.record import ThreadRecord
from labkit.simulator.roofline import Roofline
from labkit.simulator.state import VirtualRank, become, current_rank, outside
from labkit.simulator.tracebacks import describe
from labkit.torch_port.backward import single_threaded_backward

POLL_NS = 1_000
"""What asking whether a thread is alive costs."""

_ATTRIBUTE = "_labkit_thread"
_AUTOMATIC = re.compile(r"^Thread-\d+")


@dataclass(eq=False)
class Started:
    """A thread of a rank.

    Attributes:
        rank: The rank as the thread is: with its clock.
        finished: Fired when it ends.
        over: Set when it ends, for those who wait for a limited time; None for threads nobody can join.
    """

    rank: VirtualRank
    finished: Event = field(default_factory=Event)
    over: threading.Event | None = None

    @property
    def clock(self) -> RankClock:
        """Its time."""
        return self.rank.clock


@contextmanager
def at_work(rank: VirtualRank) -> Iterator[None]:
    """Count the time of what the calling thread computes, for this rank."""
    torch.set_num_threads(1)
    with single_threaded_backward(), devices_of(rank), Roofline(rank):
        yield


def begin(rank: VirtualRank, label: str, at_ns: int, body: Callable[[], None], *, kept: bool) -> Started:
    """Return a new thread of the rank that runs body from at_ns on.

    Args:
        rank: The rank, as any of its threads.
        label: What reports call the thread.
        at_ns: When it begins.
        body: What it does; an exception ends the run.
        kept: Whether the run goes on until it has ended.
    """
    started = _add(rank, label, at_ns, kept=kept)
    with outside():
        name = f"virtual rank {rank.rank}, {label}"
        thread = threading.Thread(target=_live, args=(started, body), name=name, daemon=True)
        rank.simulation.threads.append(thread)
        thread.start()
    return started


def wait_for_all(rank: VirtualRank) -> None:
    """Return once the threads that the rank's program started, and are no daemons, have ended, as a process does."""
    place = 0
    while place < len(rank.process.started):  # they may start more
        started = rank.process.started[place]
        if started.clock.kept:
            rank.wait(started.finished, _waiting(started, ""))
        place += 1


def _add(rank: VirtualRank, label: str, at_ns: int, *, kept: bool) -> Started:
    simulation, process = rank.simulation, rank.process
    process.threaded = True
    clock = simulation.scheduler.add_thread(rank.rank, at_ns, label, kept=kept)
    number = len(process.started) + 1
    started = Started(replace(rank, clock=clock, record=ThreadRecord.of(rank.record, number), stream=None))
    process.started.append(started)
    return started


def _live(started: Started, body: Callable[[], None]) -> None:
    """Be a thread of a rank, from its first turn to its last."""
    rank = started.rank
    scheduler = rank.simulation.scheduler
    become(rank)
    try:
        scheduler.enter(rank.clock.number)
        with at_work(rank):
            body()
        if started.over is not None:
            started.over.set()
        scheduler.fire(started.finished, rank.now_ns)
        scheduler.leave(rank.clock.number)
    except Abandoned:
        pass
    except BaseException as error:
        if not scheduler.has_ended:
            rank.simulation.failed(rank.rank, error)
    finally:
        become(None)


def _waiting(started: Started, source: str) -> Waiting:
    return Waiting(
        "Thread.join", lambda: [started.clock.number], lambda: f"Thread.join of {started.clock.label}", source
    )


_real_init, _real_start = threading.Thread.__init__, threading.Thread.start
_real_join, _real_is_alive = threading.Thread.join, threading.Thread.is_alive


def _init(self: threading.Thread, *args: Any, **kwargs: Any) -> None:
    rank = current_rank()
    if rank is not None and kwargs.get("daemon") is None:
        kwargs["daemon"] = not rank.clock.kept  # as its creator, where the creator is a process of its own
    with outside():  # its own locks are those of the interpreter
        _real_init(self, *args, **kwargs)
    if rank is not None and _AUTOMATIC.match(self.name):  # numbered in each process, so in each rank
        rank.process.named += 1
        self.name = _AUTOMATIC.sub(f"Thread-{rank.process.named}", self.name)


def _start(self: threading.Thread) -> None:
    rank = current_rank()
    if rank is None or _ATTRIBUTE in vars(self):
        _real_start(self)  # refuses a second start itself
        return
    started = _add(rank, self.name, rank.now_ns, kept=not self.daemon)
    started.over = threading.Event()
    vars(self)[_ATTRIBUTE] = started
    run = self.run
    vars(self)["run"] = lambda: _live(started, lambda: _run(self, started, run))
    rank.simulation.threads.append(self)
    with outside():
        _real_start(self)


def _run(thread: threading.Thread, started: Started, run: Callable[[], object]) -> None:
    """Run a learner's thread; as in a process, an exception ends it alone and is printed."""
    try:
        run()
    except SystemExit:
        pass
    except Exception as error:
        if started.rank.simulation.scheduler.has_ended:
            raise Abandoned from None  # a lock it held was let go in a hurry
        print(f"Exception in thread {thread.name}:\n{describe(error)[1]}", file=sys.stderr)


def _join(self: threading.Thread, timeout: float | None = None) -> None:
    started, rank = vars(self).get(_ATTRIBUTE), current_rank()
    if rank is None or started is None:
        _real_join(self, timeout)
        return
    if started.clock is rank.clock:
        raise RuntimeError("cannot join current thread")
    source, _ = rank.simulation.sources.find(sys._getframe(1))
    rank.turn()
    if timeout is not None and started.finished.ready_ns is None:
        assert started.over is not None
        if not started.over.wait(max(timeout, 0)):
            return
    rank.wait(started.finished, _waiting(started, source))
    with outside():
        _real_join(self)


def _is_alive(self: threading.Thread) -> bool:
    started, rank = vars(self).get(_ATTRIBUTE), current_rank()
    if rank is None or started is None:
        return _real_is_alive(self)
    rank.turn()
    if started.finished.ready_ns is None:
        rank.spend(POLL_NS)
        return True
    return False


@contextmanager
def installed() -> Iterator[None]:
    """Let threads that ranks start be threads of the rank; leave threading as it was."""
    thread: Any = threading.Thread
    before = {name: vars(thread)[name] for name in ("__init__", "start", "join", "is_alive")}
    thread.__init__, thread.start, thread.join, thread.is_alive = _init, _start, _join, _is_alive
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(thread, name, value)
