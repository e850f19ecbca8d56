"""Watches the ranks of one run from start to end."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from labkit.deadlock import FINISHED, Standing, Waiting
from labkit.errors import ConfigError, RankFailed, RunTimeout
from labkit.known_classes import loads_in_notebook
from labkit.launch import reports
from labkit.launch.channel import Inbox
from labkit.launch.hidden_waits import HiddenWaits, as_waiting
from labkit.launch.output import LAST_LINES, RankOutput
from labkit.launch.processes import LEAVE, RankProcess, RankProcesses
from labkit.launch.recording import RankLog, assemble
from labkit.launch.recording.flight import log_of
from labkit.launch.recording.follow import Follower
from labkit.launch.stacks import describe_stack, parse_fault
from labkit.launch.waits import waiting_of
from labkit.launch.watchdog import Watchdog
from labkit.timeline import Timeline

_TICK = 0.05
_LOOK_EVERY = 0.25
_WATCH_EVERY = 0.05
_SETTLE = 0.1
"""After the first failure, how long to wait for an earlier one whose message is still on its way."""
_ARRIVE_LIMIT = 0.5
_STACK_LIMIT = 0.5
_DRAIN_LIMIT = 1.0
_LEAVE_LIMIT = 20.0
_LOAD_LIMIT = 300.0


@dataclass
class _RankState:
    process: RankProcess
    output: RankOutput
    inbox: Inbox = field(default_factory=Inbox)
    output_open: bool = True
    started: bool = False
    result: bytes | None = None
    error: dict[str, Any] | None = None
    stack: str = ""
    flight: list[dict[str, Any]] | None = None

    @property
    def live(self) -> bool:
        return self.process.status is None and self.result is None and self.error is None

    def end(self) -> reports.RankEnd:
        process = self.process
        return reports.RankEnd(process.rank, self.error, process.status, self.result is not None, process.host)


class Supervisor:
    """Takes the ranks of one run from their start to their results, or to one clear error."""

    def __init__(
        self,
        processes: RankProcesses,
        ranks: list[RankProcess],
        *,
        timeout: float | None,
        stall: float | None,
        show: Callable[[str], None] | None,
        watch: Callable[[Timeline], None] | None = None,
    ) -> None:
        """Watch these ranks.

        Args:
            processes: What started them.
            ranks: The ranks.
            timeout: Seconds the run may take, or None.
            stall: Seconds without progress that count as a deadlock, or None.
            show: Where tagged output goes, or None.
            watch: Given what was recorded since, about ten times a second, or None.
        """
        self._processes = processes
        self._states = [_RankState(process, RankOutput(process.rank, show)) for process in ranks]
        self._timeout = timeout
        self._stall = stall
        several = len({process.host for process in ranks}) > 1
        self._watchdog = Watchdog(stall, between_hosts=several)
        self._flight_watchdog = Watchdog(stall, between_hosts=several)
        self._hidden = HiddenWaits(self._ask_for_stack, lambda rank: self._states[rank].stack)
        self._watch = watch
        self._follower: Follower | None = None
        self._watch_at = 0.0
        self._oom_before = {host: process.oom_kills() for host, process in {each.host: each for each in ranks}.items()}
        self._logs: dict[int, RankLog] = {}
        self._flights: dict[int, RankLog] = {}
        self._where = Standing(len(ranks), ())
        self._selector = selectors.DefaultSelector()
        self._processes.register(self._selector)
        for state in self._states:
            process = state.process
            for kind, end in (("output", process.output), ("channel", process.channel), ("stacks", process.stacks)):
                if end is not None:
                    self._selector.register(end, selectors.EVENT_READ, (kind, state))

    def supervise(self) -> list[Any]:
        """Return every rank's result once all have returned and left.

        Raises:
            RankFailed: If a rank raised, exited or was killed.
            RunTimeout: If the time limit passed or no rank can go on.
        """
        began = time.monotonic()
        loading = True
        look = began + _LOOK_EVERY
        while any(state.result is None for state in self._states):
            self._pump(_TICK)
            self._follow()
            if any(state.end().failed for state in self._states if state.error or state.process.status is not None):
                self._fail()
            now = time.monotonic()
            if loading:  # the learner's time runs from when the function can
                loading = not all(state.started for state in self._states)
                if loading and now - began > _LOAD_LIMIT:
                    self._give_up(f"Some ranks had not loaded after {_LOAD_LIMIT:g} s.")
                if not loading:
                    began = now
                continue
            if self._timeout is not None and now - began > self._timeout:
                self._give_up(f"The time limit of {self._timeout:g} s passed (timeout={self._timeout:g}).")
            if now > look:
                look = now + _LOOK_EVERY
                live = {state.process.rank: state.process.cpu_seconds() for state in self._states if state.live}
                logs = self.read_logs()
                for rank, cpu in live.items() if self._stall is not None else ():
                    if rank in logs:
                        logs[rank] = self._hidden.found(rank, logs[rank], cpu, now)
                if self._watchdog.deadlocked(live, logs, now) or self._stuck_on_devices(live, now):
                    self._give_up()
        self._release()
        return [self._unpack(state) for state in self._states]

    def _stuck_on_devices(self, cpu_used: dict[int, float | None], now: float) -> bool:
        """Return whether torch's own record says so: of NCCL's calls, for gloo's may be waited for later."""
        flights = self._read_flights()
        waits = [wait for rank in cpu_used if rank in flights for wait in flights[rank].waits]
        if not all(wait.on_device for wait in waits):
            return False
        return self._flight_watchdog.deadlocked(cpu_used, flights, now)

    def _read_flights(self) -> dict[int, RankLog]:
        """Return what torch recorded of each rank whose communication had come to rest when it last told."""
        found = ((state.process.rank, state.flight) for state in self._states)
        return {rank: log_of(rank, flight) for rank, flight in found if flight is not None}

    def finish_output(self) -> tuple[str, ...]:
        """Return what each rank printed, after what was still on its way has been echoed."""
        for state in self._states:
            state.output.finish()
        return tuple(state.output.text() for state in self._states)

    def drain(self) -> None:
        """Take in what ended ranks have left in their pipes: until each says its end, where nobody holds it open."""
        until = time.monotonic() + _DRAIN_LIMIT
        while time.monotonic() < until and any(state.output_open for state in self._states):
            self._pump(_TICK)

    def close(self) -> None:
        """Close every descriptor of the run."""
        self._selector.close()
        for state in self._states:
            state.process.close()

    def read_logs(self) -> dict[int, RankLog]:
        """Return what each rank has recorded until now; ranks without a log are left out."""
        logs = {}
        for state in self._states:
            log = state.process.read_log()
            if log is not None:
                logs[state.process.rank] = log
        return logs

    def timeline(self) -> Timeline | None:
        """Return what was recorded until now on one clock, None without any log."""
        logs = self._logs_on_one_clock()
        return assemble(logs) if logs else None

    def _logs_on_one_clock(self) -> list[RankLog]:
        logs = self.read_logs()
        return [state.process.on_one_clock(logs[rank]) for rank, state in enumerate(self._states) if rank in logs]

    def _follow(self) -> None:
        now = time.monotonic()
        if self._watch is None or now < self._watch_at:
            return
        self._follower = self._follower or Follower(len(self._states))
        self._watch(self._follower.new(self._logs_on_one_clock()))
        # A long record takes longer to read: at most a fifth of the time goes into looking.
        self._watch_at = time.monotonic() + max(_WATCH_EVERY, 4 * (time.monotonic() - now))

    def _release(self) -> None:
        for state in self._states:
            state.process.tell(LEAVE)
        until = time.monotonic() + _LEAVE_LIMIT
        while any(state.process.status is None for state in self._states):
            self._pump(_TICK)
            if time.monotonic() > until:
                self._give_up(f"Every function returned, but {_LEAVE_LIMIT:g} s later some ranks had not ended.")
        if any(state.end().failed for state in self._states):
            self._fail()

    def _unpack(self, state: _RankState) -> Any:
        assert state.result is not None
        try:
            return loads_in_notebook(state.result)
        except Exception as error:
            raise ConfigError(
                f"The result of rank {state.process.rank} cannot be rebuilt in the notebook "
                f"({type(error).__name__}: {error}); return plain data or tensors."
            ) from error

    def _fail(self) -> NoReturn:
        """Raise the error that names the rank which failed first."""
        noticed = time.monotonic()
        while True:
            ends = [state.end() for state in self._states]
            first = reports.root_cause(ends)
            if time.monotonic() - noticed > (self._processes.settle_echo if first.is_echo else _SETTLE):
                break
            self._pump(_TICK)
        standing = self._standing([state for state in self._states if state.live])
        standing = {rank: words for rank, words in standing.items() if self._states[rank].live}  # not: failed since
        ends = [state.end() for state in self._states]
        first = reports.root_cause(ends)
        described = {end.rank: self._describe(end) for end in ends if end.failed}
        cause = f"{reports.headline(first, len(ends))}\n\n{described[first.rank]}"
        message = reports.failure_message(cause, first, ends, standing)
        raise RankFailed(message, rank=first.rank, reports={**standing, **described})

    def _describe(self, end: reports.RankEnd) -> str:
        """Return how a rank failed, with the stack that a fatal signal left and the last it printed."""
        state = self._states[end.rank]
        stack = describe_stack(parse_fault(state.stack or self._processes.fatal_stack(state.process)))
        last_lines = state.output.last_lines(LAST_LINES)
        return reports.describe_end(
            end, stack, last_lines, self._oom_before[state.process.host], state.process.oom_kills()
        )

    def _give_up(self, reason: str = "") -> None:
        """Raise the error that says where every rank stands.

        Without a reason it is a deadlock, or none after all: where each rank ends while it is asked, nothing is raised.
        """
        waiting = [state for state in self._states if state.process.status is None and state.error is None]
        standing = self._standing([state for state in waiting if state.result is None] or waiting)
        if not reason and all(state.result is not None for state in self._states):
            return
        if reason:
            parts = [reason, "\n".join(self._where.lines())]
        else:
            parts = [
                self._where.report(),
                f"Every rank that has not finished waits, and none has moved for {self._stall:g} s.",
            ]
        told = {waiting.rank for waiting in self._where.waits}
        parts.append("\n".join(reports.stack_words(rank, text, rank in told) for rank, text in standing.items()))
        raise RunTimeout("\n\n".join(filter(None, parts)), rank=None, reports=standing)

    def _standing(self, states: list[_RankState]) -> dict[int, str]:
        """Return for each of these ranks the Python line it stands on and what it waits for."""
        asked = [state for state in states if state.started]
        self._let_arrive(asked)
        for state in asked:
            self._ask_for_stack(state.process.rank)
        until = time.monotonic() + _STACK_LIMIT
        before = {state.process.rank: state.process.cpu_seconds() for state in states}
        while time.monotonic() < until:
            more = self._pump(_TICK)
            if not more and all(state.stack or state.process.status is not None for state in asked):
                break
        self._logs, self._flights = self.read_logs(), self._read_flights()
        for state in asked:
            rank = state.process.rank
            if rank in self._logs:
                self._logs[rank] = as_waiting(self._logs[rank], parse_fault(state.stack))
        found = {}
        waits = {state.process.rank: self._waits(state.process.rank) for state in states}
        ended = {state.process.rank: FINISHED for state in self._states if state.result is not None}
        self._where = Standing(len(self._states), [each for each in waits.values() if each is not None], ended)
        for state in states:
            rank = state.process.rank
            stack = describe_stack(parse_fault(state.stack))
            waiting = waits[rank]
            sentence = "" if waiting is None else self._where.sentence(waiting, placed=not stack)
            cpu_seconds = state.process.cpu_seconds()
            found[rank] = reports.rank_words(rank, state.started, stack, sentence, before[rank], cpu_seconds)
        return found

    def _ask_for_stack(self, rank: int) -> None:
        state = self._states[rank]
        state.stack = ""
        self._processes.ask_for_stack(state.process)

    def _let_arrive(self, states: list[_RankState]) -> None:
        """Give ranks on their way into a communication call, or to an error, the moment they need to be seen there."""
        until = time.monotonic() + _ARRIVE_LIMIT
        while time.monotonic() < until:
            logs = self.read_logs()
            ranks = [state.process.rank for state in states if state.live]
            if all(rank in logs and logs[rank].waiting for rank in ranks):
                return
            self._pump(_TICK)

    def _waits(self, rank: int) -> Waiting | None:
        """Return what a rank waits for: by our record, or by torch's where ours is cut short or has no word of it."""
        ours = waiting_of(rank, self._logs)
        if ours is not None and not any(log.dropped for log in self._logs.values()):
            return ours
        theirs = waiting_of(rank, self._flights)
        return ours if theirs is None else replace(theirs, note=" (by torch's flight recorder)")

    def _pump(self, seconds: float) -> bool:
        """Take in what has arrived, waiting up to this long for it; return whether there was anything."""
        arrived = self._processes.poll()
        for process, kind, data in arrived:
            self._take(kind, self._states[process.rank], data)
        ready = self._selector.select(0 if arrived else seconds)
        for key, _ in ready:
            if key.data == "processes":
                self._processes.read_events()
                continue
            kind, state = key.data
            data = state.process.read(key.fileobj)
            if not data:
                self._selector.unregister(key.fileobj)
            self._take(kind, state, data)
        return bool(ready or arrived)

    def _take(self, kind: str, state: _RankState, data: bytes) -> None:
        """Take in what came out of one of a rank's ends; no bytes are its end."""
        if kind == "output":
            state.output_open = state.output_open and bool(data)
            state.output.feed(data)
        elif kind == "stacks":
            state.stack += data.decode("utf-8", "replace")
        else:
            self._take_messages(state, data)

    def _take_messages(self, state: _RankState, data: bytes) -> None:
        for kind, value in state.inbox.feed(data):
            if kind == "hello":
                state.started = True
            elif kind == "result":
                state.result = value
            elif kind == "error":
                state.error = value | {"time": state.process.here_seconds(value["time"])}
            elif kind == "stack":
                state.stack += value
            elif kind == "flight":
                state.flight = value
