"""One rank's end of torch.distributed.rpc in virtual time: calls as messages, handled in threads of the callee.

A call goes over the network like any message, is handled by one of the callee's threads (num_worker_threads of them;
further calls wait in line), and its reply comes back the same way: one of the caller's threads takes it in. Timeouts
count virtual time. One that nobody asked for, torch's 60 s, is not waited for where nothing else can happen any more:
that is a deadlock, and told as one.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch.futures import Future

from labkit.simulator import futures, threads
from labkit.simulator.clock import Event
from labkit.simulator.record import Row
from labkit.simulator.rpc_call import Call
from labkit.simulator.rpc_failure import Failure
from labkit.simulator.rpc_methods import Method, NoMethodError
from labkit.simulator.rpc_values import Packed, Reference, pack, unpack
from labkit.simulator.state import Simulation, VirtualRank, acting_as, the_rank
from labkit.timeline.span import Lane
from labkit.torch_port.futures import AnyFuture
from labkit.torch_port.operators import uncounted
from labkit.torch_port.rpc import ASYNC_MARK

ISSUE_NS = 85_000
"""What rpc_async takes of the caller's time, measured as MESSAGE_NS was: the median of 200."""

MESSAGE_NS = 130_000
"""What a call or a reply takes besides the network, to be handed over and woken up for: half of what an empty call took
beyond ISSUE_NS (340 us in all, the least of 200) with torch 2.13's TensorPipe agent over shared memory, between two
processes of an idle two-core host."""


@dataclass(eq=False)
class Group:
    """The workers that one init_rpc brings together.

    Attributes:
        size: How many they are.
        agents: Worker id -> its agent, as they come.
        joined: Fired when all have come.
        leaving: Those in shutdown(), with the event each waits for.
        under_way: Calls that have no answer yet.
    """

    size: int
    agents: dict[int, Agent] = field(default_factory=dict)
    joined: Event = field(default_factory=Event)
    leaving: dict[int, Event] = field(default_factory=dict)
    under_way: int = 0


class Shared:
    """What all agents of a run share.

    Attributes:
        groups: Groups by how often init_rpc was called before.
        impatient: Actions in the queue that only give up on a call nobody set a limit for.
    """

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.groups: dict[int, Group] = {}
        self.impatient = 0


class Agent:
    """One worker.

    Attributes:
        rank: The rank it belongs to.
        info: Its name and id.
        group: Those it can call.
        num_threads: How many calls it handles at once.
        timeout_s: How long a call may take where the call does not say, 0 for ever.
        patient: Whether nobody chose that limit.
        at_work: Calls being handled.
        line: Calls that wait for a thread.
        replies: Replies to its own calls that wait for one.
        gone: Why it answers no more, "" while it does.
        values: Objects it owns, by key: futures of (whether it could be made, object or failure).
    """

    def __init__(
        self, rank: VirtualRank, info: Any, group: Group, num_threads: int, timeout_s: float, patient: bool,
        shared: Shared,
    ) -> None:  # fmt: skip
        self.rank, self.info, self.group, self.num_threads = rank, info, group, num_threads
        self.timeout_s, self.patient, self._shared = timeout_s, patient, shared
        self.at_work: list[Call] = []
        self.line: deque[Call] = deque()
        self.replies: deque[tuple[Call, Packed]] = deque()
        self.gone = ""
        self.values: dict[tuple[int, int], Future[Any]] = {}
        self.make_reference: Callable[[Reference], object] = lambda reference: reference
        self.as_reference: Callable[[object], Reference | None] = lambda value: None
        self._made = self._called = 0

    def clock(self, number: int) -> Any:
        """Return the clock of this number."""
        return self.rank.simulation.scheduler.clocks[number]

    def new_key(self) -> tuple[int, int]:
        """Return a key that no object has yet."""
        self._made += 1
        return (self.info.id, self._made - 1)

    def value_of(self, key: tuple[int, int]) -> Future[Any]:
        """Return the future of an object that it owns."""
        found = self.values.get(key)
        if found is None:
            found = self.values[key] = Future()
            futures.state_of(found).text = lambda: f"RRef.local_value, whose object rank {self.rank.rank} never made"
        return found

    def call(
        self, kind: str, name: str, callee: Agent, request: tuple[Any, Any, Any], *, timeout_s: float, source: str,
        key: tuple[int, int] | None = None,
    ) -> Call:  # fmt: skip
        """Return a call that has now been sent.

        Args:
            kind: "rpc_sync", "rpc_async", "remote" or "to_here".
            name: What is called.
            callee: Who is called.
            request: Function, arguments, keyword arguments.
            timeout_s: Seconds it may take, 0 for ever, negative for what the agent was given.
            source: The learner's line.
            key: Where the callee keeps the result.
        """
        rank = the_rank()
        rank.turn()
        if rank.simulation.trial is not None:
            rank.simulation.trial.call(rank, kind, [])
        packed = pack(request, rank.process, self.as_reference)
        row = rank.record.add(
            Row(
                Lane.COMMUNICATION, rank.now_ns, -1, name, kind, packed.bytes, callee.rank.rank,
                next(rank.simulation.flows), source=source, blocking=kind in ("rpc_sync", "to_here"), waited=True,
            )
        )  # fmt: skip
        self._called += 1
        call = Call(kind, name, self, callee, packed, row, Future(), key, number=self._called)
        if (observer := rank.simulation.observer) is not None:
            observer.asked(rank, row, self._called, list(request))
        state = futures.state_of(call.future)
        state.text, state.peers = call.text, call.peers
        self.group.under_way += 1
        self._send(row, packed.bytes, callee, rank.now_ns + ISSUE_NS, lambda there_ns: callee.arrive(call, there_ns))
        patient = timeout_s < 0 and self.patient
        limit_s = self.timeout_s if timeout_s < 0 else timeout_s
        if limit_s:
            self._shared.impatient += patient
            until_ns = rank.now_ns + round(limit_s * 1e9)
            rank.simulation.scheduler.act(until_ns, lambda: self._expire(call, limit_s, until_ns, patient))
        rank.spend(ISSUE_NS)
        return call

    def _send(self, row: Row, num_bytes: int, to: Agent, now_ns: int, arrived: Callable[[int], None]) -> None:
        """Have bytes of a call with this span go to a worker; arrived is called when they are there, with the time."""
        simulation = self.rank.simulation
        leaves_ns = now_ns + MESSAGE_NS

        def leave() -> None:
            way = simulation.network.transfer(self.rank.rank, to.rank.rank, num_bytes, leaves_ns)
            begins_ns = now_ns if row.moves else row.start_ns  # issuing the call is part of sending it
            row.moves = (*row.moves, (begins_ns, way.there_ns))
            simulation.scheduler.act(way.there_ns, lambda: arrived(way.there_ns))

        simulation.scheduler.act(leaves_ns, leave)

    def arrive(self, call: Call, now_ns: int) -> None:
        """Take in a call that has come: handle it, or let it wait for a thread."""
        if self.gone:
            self._refuse(call, now_ns)
        elif len(self.at_work) < self.num_threads:
            self._begin(call, now_ns)
        else:
            self.line.append(call)

    def _begin(self, call: Call, now_ns: int) -> None:
        self.at_work.append(call)
        label = f"{call.name}() for {call.caller.info.name}"
        started = threads.begin(self.rank, label, now_ns, lambda: self._handle(call), kept=False)
        call.handler = started.clock.number

    def _handle(self, call: Call) -> None:
        """Execute a call, in a thread of its own."""
        rank = the_rank()
        row = call.served = rank.record.add(
            Row(
                Lane.HOST, rank.now_ns, -1, call.name, "rpc_serve", call.request.bytes, call.caller.rank.rank,
                call.row.flow, source=call.row.source, waited=True,
            )
        )  # fmt: skip
        try:
            function, args, kwargs = unpack(call.request, rank.process, self.make_reference)
            if isinstance(function, Method):
                function = function.found()
            result = function(*args, **kwargs)
        except NoMethodError as error:
            self._answer(call, False, Failure(str(error), AttributeError, plain=True))
        except Exception as error:
            self._answer(call, False, Failure.of(error, self.info))
        else:
            if not hasattr(function, ASYNC_MARK):
                self._answer(call, True, result)
            elif isinstance(result, AnyFuture):
                result.add_done_callback(lambda future: self._answer_with(call, future))
            else:
                text = (
                    "Functions decorated with @rpc.async_function must return a torch.futures.Future object, but got "
                    f"{type(result).__module__}.{type(result).__qualname__}"
                )
                self._answer(call, False, Failure(text, RuntimeError, plain=True))
        row.end_ns = rank.now_ns
        self.at_work.remove(call)
        while self.replies:
            own, reply = self.replies.popleft()
            rank.simulation.scheduler.act(rank.now_ns, partial(self._take_in, own, reply, rank.now_ns))
        if self.line and not self.gone:
            self._begin(self.line.popleft(), rank.now_ns)

    def _answer_with(self, call: Call, future: Future[Any]) -> None:
        if type(future) is not Future:  # of a collective
            self._answer(call, True, future.wait())
            return
        state = futures.state_of(future)
        if state.failed:  # it says already where it comes from
            self._answer(call, False, Failure(str(state.value), RuntimeError, plain=True))
        else:  # what set_exception was given, too, goes as a value with torch
            self._answer(call, True, state.value)

    def _answer(self, call: Call, fine: bool, value: Any) -> None:
        """Send the reply to a call, in the thread that has it."""
        rank = the_rank()
        if rank.simulation.scheduler.has_ended:
            return
        number = rank.clock.number
        if number != call.handler:
            call.row.answered = next((each.served for each in self.at_work if each.handler == number), None)
        if not fine:
            print(value.text, file=sys.stderr)
        if call.key is not None:
            self.value_of(call.key).set_result((fine, value))
            fine, value = True, None
        try:
            packed = pack((fine, value), rank.process, self.as_reference)
        except Exception as error:
            packed = pack((False, Failure.of(error, self.info)), rank.process, self.as_reference)
        back = call.caller
        self._send(call.row, packed.bytes, back, rank.now_ns, lambda there_ns: back.learn(call, packed, there_ns))

    def learn(self, call: Call, reply: Packed, now_ns: int) -> None:
        """Take in the reply to a call of its own, or let it wait for a thread."""
        if len(self.at_work) < self.num_threads:
            self._take_in(call, reply, now_ns)
        else:
            self.replies.append((call, reply))

    def _take_in(self, call: Call, reply: Packed, now_ns: int) -> None:
        if call.done:
            return
        with self.rank.simulation.standing_in(self.rank.rank), acting_as(self.rank), uncounted():
            try:
                fine, value = unpack(reply, self.rank.process, self.make_reference)
                if (observer := self.rank.simulation.observer) is not None:
                    observer.answered(self.rank, call.row, call.number, value)
            except Exception as error:
                fine, value = False, Failure.of(error, self.info)
        if not fine:
            value = value.error(exact=call.kind == "to_here")
        self._finish(call, fine, value, now_ns)

    def _expire(self, call: Call, limit_s: float, now_ns: int, patient: bool) -> None:
        self._shared.impatient -= patient
        if call.done:
            return
        scheduler = self.rank.simulation.scheduler
        if patient and scheduler.holds_only(self._shared.impatient):
            scheduler.abandon(scheduler.deadlocked())
            return
        limit = f"({round(limit_s * 1000)} ms)"
        text = f"RPCErr:1:RPC ran for more than set timeout {limit} and will now be marked with an error"
        self._finish(call, False, RuntimeError(text), now_ns)

    def _refuse(self, call: Call, now_ns: int) -> None:
        simulation, caller = self.rank.simulation, call.caller
        back_ns = now_ns + simulation.network.latency_ns(self.rank.rank, caller.rank.rank)
        error = RuntimeError(f"{call.name}() could not be answered: {self.gone}")
        simulation.scheduler.act(back_ns, lambda: None if call.done else caller._finish(call, False, error, back_ns))

    def _finish(self, call: Call, fine: bool, value: Any, now_ns: int) -> None:
        """Give the caller its answer: in an action, or, where it has callbacks to run, in a thread of its own."""
        call.done = True
        call.row.end_ns, call.row.failed = now_ns, not fine

        def settle() -> None:
            (futures.complete if fine else futures.fail)(self.rank, call.future, value, now_ns)

        self.group.under_way -= 1
        if futures.state_of(call.future).callbacks:

            def settle_and_call_back() -> None:
                settle()
                futures.call_back(call.future)
                self._let_leave()

            threads.begin(self.rank, f"reply of {call.name}()", now_ns, settle_and_call_back, kept=False)
        else:
            settle()
            self._let_leave_at(now_ns)

    def _let_leave(self) -> None:
        self._let_leave_at(the_rank().now_ns)

    def _let_leave_at(self, now_ns: int) -> None:
        """Let those in shutdown() go once all are there and no call is under way."""
        group = self.group
        if group.under_way == 0 and len(group.leaving) == group.size:
            for event in group.leaving.values():
                if event.ready_ns is None:
                    self.rank.simulation.scheduler.fire(event, now_ns)

    def leave_together(self, event: Event) -> None:
        """Say that this worker is in shutdown(); the event is fired when all are and no call is under way."""
        self.group.leaving[self.info.id] = event
        self._let_leave()

    def leave(self, why: str) -> None:
        """Answer no more from now on: what is under way here fails at its caller."""
        self.gone = why
        now_ns = the_rank().now_ns
        for call in (*self.at_work, *self.line):
            self._refuse(call, now_ns)
        self.line.clear()
        for event in self.group.leaving.values():
            if event.ready_ns is None:
                self.rank.simulation.scheduler.fire(event, now_ns)
