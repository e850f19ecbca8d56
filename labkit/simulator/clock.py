"""Virtual time: ranks are threads of which one runs at a time, and what they share happens in the order of time.

The queue holds ``(time, sequence, rank or action)``: ties have an order, so runs repeat. A rank runs without being
interrupted until it waits for an :class:`Event` that has not happened, or looks at one; its own clock may then stand
far ahead of others'. What it posts on the way becomes an *action* of the time at which it was posted, and actions are
taken from the queue in the order of time once no rank can still do anything earlier. So contention for a port is
settled fairly, and threads change only where a rank really waits.

Ranks are threads of the operating system: torch keeps its modes, groups and backward passes by thread, so lighter ones
would mix them up. They would not be quicker either: greenlets, tried on a ring of 64 ranks, took as long.
What changing ranks costs is less what the system does than what the processor's cache no longer holds: the same calls
in one rank alone take half the time. So what a call touches counts, and where threads run (labkit.simulator.one_core).
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol


class Abandoned(BaseException):
    """Raised inside a rank that must end because the run has; no learner's ``except Exception`` catches it."""


@dataclass(frozen=True)
class Waiting:
    """What a rank waits for.

    Attributes:
        operation: c10d's word, such as "recv".
        peers: Returns the global ranks (or numbers of threads' clocks) that have to do something first, as known at
            the time it is asked.
        text: Returns what a report says of it, "recv from rank 1".
        source: The learner's file:line.
        collective: Of a collective, what `facts` returns; None for anything else.
    """

    operation: str
    peers: Callable[[], list[int]]
    text: Callable[[], str]
    source: str
    collective: Mapping[str, Any] | None = None

    def facts(self) -> Mapping[str, Any]:
        """Return what a report of a deadlock says of it, as labkit.deadlock.Waiting has it."""
        return {"said": self.text()} if self.collective is None else self.collective


class Waits(Protocol):
    """What says what a rank waits for, as :class:`Waiting` does."""

    @property
    def operation(self) -> str:
        """c10d's word."""

    @property
    def source(self) -> str:
        """The learner's file:line."""

    def peers(self) -> list[int]:
        """Return who has to do something first."""

    def text(self) -> str:
        """Return what a report says of it."""

    def facts(self) -> Mapping[str, Any]:
        """Return what a report of a deadlock says of it, as labkit.deadlock.Waiting has it."""


class Event:
    """Something that happens once, at a time that may lie ahead.

    Attributes:
        ready_ns: When it happens, or None while that is not known.
    """

    __slots__ = ("ready_ns", "waiters")

    def __init__(self) -> None:
        self.ready_ns: int | None = None
        self.waiters: list[int] = []


@dataclass
class RankClock:
    """The time of one rank, or of one more thread of a rank, and whether it can run.

    Attributes:
        rank: Global rank.
        now_ns: Its time.
        waiting: What it waits for, None while it can run.
        done: Whether its function has ended.
        baton: Released to let it run.
        number: Its place among the scheduler's clocks: the rank for a rank itself, more for other threads.
        label: What reports call the thread, "" for the rank itself.
        kept: Whether the run goes on until it is done.
        lost: Whether it never runs again, because its rank was killed or stands still.
    """

    rank: int
    now_ns: int = 0
    waiting: Waits | None = None
    done: bool = False
    baton: Any = field(default_factory=threading.Lock, repr=False)
    number: int = -1
    label: str = ""
    kept: bool = True
    lost: bool = False

    def __post_init__(self) -> None:
        if self.number < 0:
            self.number = self.rank

    @property
    def name(self) -> str:
        """What reports call it."""
        return f"rank {self.rank} ({self.label})" if self.label else f"rank {self.rank}"


class Scheduler:
    """Hands the baton from rank to rank.

    Attributes:
        clocks: One per rank, then one per thread that a rank has started.
        running: The rank that runs, or that ran last, -1 before any has.
        switches: How often another rank took over.
        failure: Why the run ends before all ranks are done, once it does.
        over: Whether everything that counts is done.
        has_ended: Whether the run is over, or ends because it failed.
        resumed: Called in the thread of a rank each time it takes over, with the rank that ran before (-1 for none).
        deadlocked: Called when no rank can go on and not all are done; returns the error that the run ends with.
    """

    def __init__(
        self,
        num_ranks: int,
        resumed: Callable[[int, int], None] | None = None,
        deadlocked: Callable[[], BaseException] | None = None,
    ) -> None:
        self.clocks = [RankClock(rank) for rank in range(num_ranks)]
        for clock in self.clocks:
            clock.baton.acquire()
        self.switches = 0
        self.failure: BaseException | None = None
        self.over = self.has_ended = False
        self.resumed = resumed
        self.deadlocked = deadlocked or (lambda: RuntimeError("deadlock"))
        self._queue: list[tuple[int, int, int, Callable[[], None] | None]] = []
        self._sequence = 0
        self.running = -1
        self._would_go_on: dict[int, Event] = {}
        self._left = num_ranks
        self._lock = threading.Lock()

    def leave_out(self, rank: int) -> None:
        """Let a rank not run at all; to be called before the others start."""
        self.clocks[rank].done = True
        self._left -= 1

    def start(self) -> None:
        """Let the ranks run, from rank 0 on; each thread calls :meth:`enter` first."""
        for clock in self.clocks:
            if not clock.done:
                self._push(clock)
        self._hand_over(self._advance())

    def enter(self, rank: int) -> None:
        """Wait, in the thread of this rank, until it is its turn for the first time."""
        self.clocks[rank].baton.acquire()
        self._raise_if_over()
        self._took_over(rank)

    def leave(self, rank: int) -> None:
        """Say that this rank is done and let another run."""
        clock = self.clocks[rank]
        clock.done = True
        self._left -= clock.kept
        if not self.has_ended:
            following = self._advance()
            if not self._left:
                self._finish(following)
            elif following >= 0:
                self._hand_over(following)
            elif not self.has_ended:
                self.abandon(self.deadlocked())

    def lose(self, rank: int, *, ended: bool) -> None:
        """Let no thread of this rank run again.

        Args:
            rank: Global rank.
            ended: Whether its process is over; else it is there and stands still.
        """
        for clock in self.clocks:
            if clock.rank == rank and not clock.done and not clock.lost:
                clock.lost = True
                if ended:
                    clock.done = True
                    self._left -= clock.kept

    def stand(self, number: int) -> NoReturn:
        """Let others run, in a thread of a rank that is lost, until the run is over."""
        if not self.has_ended:
            following = self._advance()
            if not self._left:
                self._finish(following)
            elif following >= 0:
                self._hand_over(following)
            elif not self.has_ended:
                self.abandon(self.deadlocked())
        if not self.has_ended:
            self.clocks[number].baton.acquire()
        raise Abandoned

    def add_thread(self, rank: int, now_ns: int, label: str, *, kept: bool) -> RankClock:
        """Return the clock of one more thread of a rank, which can run from now_ns on.

        Args:
            rank: Global rank.
            now_ns: When it begins.
            label: What reports call it.
            kept: Whether the run goes on until it is done, as a process does for threads that are no daemons.
        """
        clock = RankClock(rank, now_ns, number=len(self.clocks), label=label, kept=kept)
        clock.baton.acquire()
        self.clocks.append(clock)
        self._left += kept
        self._push(clock)
        return clock

    def holds_only(self, entries: int) -> bool:
        """Return whether nothing is left that could happen but so many actions that only give up on something."""
        return len(self._queue) <= entries

    def abandon(self, failure: BaseException) -> None:
        """End the run: every rank gets :class:`Abandoned` where it waits, or where it waits next."""
        with self._lock:
            if self.failure is not None:
                return
            self.failure = failure
            self.has_ended = True
        self._let_all_go()

    def act(self, at_ns: int, action: Callable[[], None]) -> None:
        """Have the action done when all that can happen before at_ns has happened; it must not wait."""
        self._sequence += 1
        heapq.heappush(self._queue, (at_ns, self._sequence, -1, action))

    @property
    def all_done(self) -> bool:
        """Whether all that counts is done, and only what it has begun goes on."""
        return not self._left

    def check(self) -> None:
        """Raise :class:`Abandoned` where the run is over."""
        self._raise_if_over()

    def turn(self, rank: int) -> None:
        """Let everything happen that happens before this rank's time; call before looking at what others do."""
        self._raise_if_over()
        if self._queue and self._queue[0][0] <= self.clocks[rank].now_ns:
            self._push(self.clocks[rank])
            self._switch(rank)

    def wait_until(self, rank: int, event: Event, waiting: Waits, until_ns: int) -> bool:
        """Wait for the event, at most until this time; return whether it was known by then when it happens."""
        clock, given_up = self.clocks[rank], []

        def give_up() -> None:
            if event.ready_ns is None and rank in event.waiters:
                event.waiters.remove(rank)
                given_up.append(True)
                clock.now_ns = max(clock.now_ns, until_ns)
                self._push(clock)

        if event.ready_ns is None:
            self.act(until_ns, give_up)
            event.waiters.append(rank)
            clock.waiting = waiting
            self._switch(rank)
            clock.waiting = None
        if given_up:
            return False
        self.wait(rank, event, waiting)
        return True

    def wait(self, rank: int, event: Event, waiting: Waits) -> None:
        """Return once the event has happened, with the rank's clock not before it."""
        clock = self.clocks[rank]
        if event.ready_ns is None:
            event.waiters.append(rank)
            clock.waiting = waiting
            self._switch(rank)
            clock.waiting = None
        ready_ns = event.ready_ns
        assert ready_ns is not None
        if ready_ns > clock.now_ns:
            clock.now_ns = ready_ns

    def wait_unless_stuck(self, rank: int, event: Event, waiting: Waits) -> bool:
        """Wait for the event as long as anybody can go on; return whether it has happened."""
        clock = self.clocks[rank]
        if event.ready_ns is None:
            event.waiters.append(rank)
            clock.waiting = waiting
            self._would_go_on[rank] = event
            self._switch(rank)
            self._would_go_on.pop(rank, None)
            clock.waiting = None
        return event.ready_ns is not None

    def fire(self, event: Event, at_ns: int) -> None:
        """Make the event happen at this time and let go on who waits for it."""
        assert event.ready_ns is None
        event.ready_ns = at_ns
        if event.waiters:
            for rank in event.waiters:
                clock = self.clocks[rank]
                if at_ns > clock.now_ns:
                    clock.now_ns = at_ns
                self._push(clock)
            event.waiters.clear()

    def _finish(self, following: int) -> None:
        """Do what is still to be done, without the threads that nobody waits for, and let those end."""
        while following >= 0:
            following = self._advance()
        self.over = self.has_ended = True
        self._let_all_go()

    def _let_all_go(self) -> None:
        for clock in list(self.clocks):
            try:
                clock.baton.release()
            except RuntimeError:
                continue  # already released: it is about to run, and will see that the run is over

    def _push(self, clock: RankClock) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (clock.now_ns, self._sequence, clock.number, None))

    def _switch(self, rank: int) -> None:
        if self.has_ended:
            raise Abandoned
        following = self._advance()
        if self.has_ended:
            raise Abandoned
        if following == rank:
            return
        if following < 0:
            self.abandon(self.deadlocked())
            raise Abandoned
        self._hand_over(following)
        self.clocks[rank].baton.acquire()
        if self.has_ended:
            raise Abandoned
        self._took_over(rank)

    def _advance(self) -> int:
        """Return the rank that runs next, after every action that comes before; -1 for none."""
        queue = self._queue
        while queue:
            _, _, rank, action = heapq.heappop(queue)
            if action is not None:
                action()
            elif not self.clocks[rank].lost:
                return rank
        for rank, event in self._would_go_on.items():
            if rank in event.waiters and not self.clocks[rank].lost:
                event.waiters.remove(rank)
                del self._would_go_on[rank]
                return rank
        return -1

    def _hand_over(self, rank: int) -> None:
        try:
            self.clocks[rank].baton.release()
        except RuntimeError:
            if self.failure is None:
                raise

    def _took_over(self, rank: int) -> None:
        self.switches += 1
        before, running = self.running, self.clocks[rank].rank
        self.running = running
        if before != running and self.resumed is not None:
            self.resumed(before, running)

    def _raise_if_over(self) -> None:
        if self.has_ended:
            raise Abandoned
