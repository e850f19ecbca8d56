"""One run of a function on a virtual cluster, from call to outcome."""

from __future__ import annotations

import ctypes
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from operator import attrgetter
from typing import Any

import torch
import torch.distributed as dist

from labkit.errors import ConfigError, EnvironmentProblem
from labkit.known_classes import loads_in_notebook
from labkit.simulator import (
    cuda_functions,
    cuda_libraries,
    fused_kernels,
    library_locks,
    local_pieces,
    locks,
    own_warnings,
    replaced,
    rpc,
    shapes_mode,
    stated_kernels,
    threads,
)
from labkit.simulator.accelerator import UNUSED, add_accelerators
from labkit.simulator.asked_groups import AskedGroups, monitored_barrier
from labkit.simulator.assembled import assemble
from labkit.simulator.by_value import dump_call, dump_result, loads_in_rank
from labkit.simulator.clock import Abandoned, Scheduler
from labkit.simulator.cluster import Cluster
from labkit.simulator.conclusions import Outcome, raise_what_ended
from labkit.simulator.device_mode import devices_of
from labkit.simulator.endings import DeadlockError, RankError, StandstillError, TimeIsUpError
from labkit.simulator.failure_plan import FailurePlan
from labkit.simulator.fold import Fold, alone, differences, drop_absent_ranks
from labkit.simulator.garbage import collected_by_us
from labkit.simulator.ledgers import add_memories
from labkit.simulator.left_open import groups_of_some, left_open
from labkit.simulator.memory import RankMemory
from labkit.simulator.memory_hooks import memory_watched
from labkit.simulator.memory_table import memory_tables
from labkit.simulator.messages import Exchange
from labkit.simulator.network import Network
from labkit.simulator.observer import Observer
from labkit.simulator.one_core import OneCore
from labkit.simulator.own_modules import OwnModules
from labkit.simulator.own_tables import OwnTables
from labkit.simulator.phases import optimizers_watched
from labkit.simulator.process_globals import GlobalsSwitch, ProcessGlobals, rank_environ
from labkit.simulator.rank_names import names_of
from labkit.simulator.roofline import Roofline
from labkit.simulator.rounds import Rounds
from labkit.simulator.standstill import WHAT_IS_VIRTUAL, Standstill
from labkit.simulator.state import Simulation, VirtualRank, become, current_rank, current_world
from labkit.simulator.store import VirtualStore
from labkit.simulator.stream_work import settle
from labkit.simulator.streams import DeviceStreams
from labkit.simulator.trials import Trial
from labkit.simulator.virtual_deadlock import describe as describe_deadlock
from labkit.simulator.virtual_port import make_port
from labkit.simulator.work_done import marked_at_steps, work_table
from labkit.timeline.span import Problem
from labkit.torch_port.asked_groups import as_nccl_does
from labkit.torch_port.backend import register
from labkit.torch_port.backward import single_threaded_backward
from labkit.torch_port.group_tables import installed
from labkit.torch_port.handles import keep_forward_handles
from labkit.torch_port.known_crashes import profiler_refused, refused
from labkit.torch_port.low_precision_buckets import filled
from labkit.torch_port.meeting import refuse_a_second_group
from labkit.torch_port.operators import rules_found_quickly
from labkit.torch_port.rank_stores import shared_stores

_GRACE_S = 5.0
_LOOK_S = 0.2
_WAITS_IN_CPP = ("autograd.", "nn.", "distributed.", "futures.", "optim.")
"""Parts of torch in which a rank that stands waits for another: such a run is over."""
_one_at_a_time = threading.Lock()


def simulate(
    fn: Callable[..., object],
    args: tuple[object, ...],
    cluster: Cluster,
    *,
    timeout: float | None = None,
    seed: int = 0,
    init: bool = True,
    echo: bool = True,
    cuda: bool = False,
    observer: Observer | None = None,
    failure_plan: FailurePlan | None = None,
    shapes: bool = False,
    fold: Fold | None = None,
) -> Outcome:
    """Return what ``fn(*args)`` gives on every rank of a virtual cluster.

    Args:
        fn: Any function that torch.distributed would run on real ranks.
        args: Its arguments, copied for each rank.
        cluster: The hardware.
        timeout: Seconds of real time the run may take, or None.
        seed: Rank r seeds torch, numpy and random with seed + r.
        init: Make the default process group before fn and destroy it after.
        echo: Show what ranks print, tagged with the rank.
        cuda: The ranks find their devices as CUDA devices.
        observer: Is told what ranks do.
        failure_plan: What breaks, and how ranks are started again; None where nothing may.
        shapes: Tensors on those have no values.
        fold: Which ranks do not run, because others do the same.

    Raises:
        ConfigError: If called inside a virtual rank or while another run goes on, or something cannot be copied.
        RankFailed: If a rank raised.
        RunTimeout: If the ranks wait for each other, or the time is up.
        EnvironmentProblem: If a rank could not be ended.
    """
    if current_rank() is not None:
        raise ConfigError("labkit.run was called inside a virtual rank; a virtual cluster cannot run inside another.")
    call = dump_call(fn, args)
    if not _one_at_a_time.acquire(blocking=False):
        raise ConfigError("Another thread of this process has a virtual run under way; wait until it ends.")
    try:
        trial = None if failure_plan is None else Trial(failure_plan, cluster)
        with nullcontext() if trial is None else trial.with_disk(cluster):
            while True:
                with collected_by_us():  # to the end: a run recorded millions of objects, none of them in a cycle
                    of_trial = cluster if trial is None else trial.cluster
                    attempt = _Run(call, of_trial, seed, init, echo, cuda, observer, trial, shapes, fold)
                    attempt.carry_out(timeout)
                    if trial is None or not trial.next_after(*attempt.ended()):
                        return attempt.conclude()
    finally:
        _one_at_a_time.release()


class _Run:
    """One run while it goes on."""

    def __init__(
        self, call: bytes, cluster: Cluster, seed: int, init: bool, echo: bool, cuda: bool, observer: Observer | None,
        trial: Trial | None, shapes: bool, fold: Fold | None,
    ) -> None:  # fmt: skip
        self._trial = trial
        self._call, self._cluster, self._seed, self._init = call, cluster, seed, init
        self._hub = GlobalsSwitch()
        scheduler = Scheduler(cluster.world_size, self._hub.resumed, self._deadlocked)
        what_if = None if observer is None else observer.what_if
        placed = cluster if what_if is None else what_if.placed(cluster)
        self._simulation = Simulation(placed, scheduler, Network(placed), observer=observer, what_if=what_if, fold=fold)
        self._simulation.exchange = Exchange(self._simulation)
        self._simulation.rounds = Rounds(self._simulation)
        self._simulation.failed = lambda rank, error: scheduler.abandon(RankError(rank, error))
        self._simulation.draws = self._hub.draws
        self._simulation.standing_in = self._hub.standing_in
        self._simulation.add_ranks()
        if trial is not None:
            trial.begin(self._simulation, self._silence)
        self._notes = self._simulation.notes
        self._cuda, self._shapes = cuda, shapes
        if cluster.computes_beside(cuda=cuda):
            for rank in self._simulation.ranks:
                rank.process.device = DeviceStreams(scheduler, rank.record.held)
        if cuda:
            add_accelerators(self._simulation.ranks, cluster, self._notes, shapes=shapes)
        self._memories = add_memories(self._simulation, cuda=cuda)
        self._events: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        show = self._events.put if echo else None
        self._running = [self._simulation.ranks[one] for one in alone(fold, scheduler)]
        for rank in self._simulation.ranks:
            if fold is not None and not fold.runs(rank.rank):
                self._hub.of_rank.append(self._hub.of_rank[fold.stands_for(rank.rank)])
                continue
            environ = rank_environ(names_of(cluster, rank.rank, cuda) | ({} if trial is None else trial.environ()))
            if cuda:  # what is there before is this host's
                environ.pop(os.environ.encodekey("CUDA_VISIBLE_DEVICES"), None)
            self._hub.of_rank.append(ProcessGlobals(environ, seed + rank.rank, show, rank.rank))
        self._tables = OwnTables(cluster.world_size, cuda=cuda)
        self._modules = OwnModules(cluster.world_size, self._tables.look)
        for rank in self._running:
            rank.process.namespaces["__main__"] = vars(self._modules.add_main(rank.rank))
        self._store = VirtualStore()
        self._stores: dict[str, VirtualStore] = {}
        self._standstill = Standstill(scheduler, lambda: self._threads + self._simulation.threads)
        self._one_core = OneCore(lambda: self._threads + self._simulation.threads, lambda: scheduler.switches)
        self._packed: list[bytes | None] = [None] * cluster.world_size
        self._threads: list[threading.Thread] = []

    def ended(self) -> tuple[BaseException | None, list[str]]:
        """Return what ended it, None for the program's own end, and what ranks printed."""
        return self._simulation.scheduler.failure, [
            one.output.text() if one.rank == number else "" for number, one in enumerate(self._hub.of_rank)
        ]

    def _silence(self, rank: int) -> None:
        self._hub.of_rank[rank].output.silent = True

    def carry_out(self, timeout: float | None) -> None:
        """Run it to its end, whichever that is."""
        scheduler, num_threads, real_out = self._simulation.scheduler, torch.get_num_threads(), sys.stdout
        replaced.note()
        with ExitStack() as stack:
            stack.callback(torch.set_num_threads, num_threads)
            torch.set_num_threads(1)
            register("virtual", make_port)
            groups = AskedGroups()
            ways = (lambda: self._store, monitored_barrier, groups.agree, groups.made)
            stack.enter_context(installed("virtual", current_world, *ways))
            stack.enter_context(as_nccl_does(groups.is_nccl, groups.may_split))
            stack.enter_context(refused(lambda: current_rank() is not None))
            stack.enter_context(profiler_refused(lambda: current_rank() is not None))
            stack.enter_context(filled(lambda: current_rank() is not None, lambda text: self._notes.update({text: 0})))
            stack.enter_context(shared_stores(self._named_store))
            stack.callback(keep_forward_handles())
            if self._init:
                stack.callback(refuse_a_second_group())
            for context in (rules_found_quickly(), self._hub.installed(), self._one_core.hidden()):
                stack.enter_context(context)
            devices = (cuda_functions, cuda_libraries, local_pieces) if self._cuda else ()
            if self._shapes:
                stack.enter_context(shapes_mode.installed())
            for part in (fused_kernels, stated_kernels, *devices, locks, library_locks, own_warnings, threads, rpc):
                stack.enter_context(part.installed())
            stack.enter_context(memory_watched(self._memory))
            stack.enter_context(
                marked_at_steps(lambda: (rank.record.work, rank.noted) if (rank := current_rank()) else None)
            )
            stack.enter_context(optimizers_watched())
            stack.enter_context(nullcontext() if self._trial is None else self._trial.installed())
            stack.enter_context(self._hub.switching(self._modules, self._tables, self._notes))
            self._threads = [
                threading.Thread(target=self._live, args=(rank,), name=f"virtual rank {rank.rank}", daemon=True)
                for rank in self._running
            ]
            for thread in self._threads:
                thread.start()
            scheduler.start()
            finished = False
            try:
                finished = self._watch(timeout, real_out)
            finally:
                if not finished:
                    scheduler.abandon(Abandoned())
                self._end()
                self._show_rest(real_out)

    def _watch(self, timeout: float | None, out: Any) -> bool:
        """Show what ranks print until all are done and return True; end the run and return False when time is up."""
        until = None if timeout is None else time.monotonic() + timeout
        left = len(self._threads)
        while left:
            self._one_core.look()
            try:
                event = self._events.get(timeout=_LOOK_S)
            except queue.Empty:
                if (where := self._standstill.look()) is not None:
                    if any(f"stands in torch.{part}" in where for part in _WAITS_IN_CPP):
                        self._simulation.scheduler.abandon(StandstillError(where))
                        return False
                    out.write(f"{where[0].upper()}{where[1:]} and uses no processor. {WHAT_IS_VIRTUAL}\n")
                if until is None or time.monotonic() < until:
                    continue  # an interrupt is seen here on systems where it does not end the wait
                self._simulation.scheduler.abandon(TimeIsUpError())
                return False
            if event is None:
                left -= 1
            else:
                out.write(event + "\n")
        return True

    def _show_rest(self, out: Any) -> None:
        for rank in self._running:
            self._hub.of_rank[rank.rank].output.finish()
        while not self._events.empty():
            event = self._events.get()
            if event is not None:
                out.write(event + "\n")

    def _end(self) -> None:
        """Return once no thread of a rank is left."""
        until = time.monotonic() + _GRACE_S
        every = self._threads + self._simulation.threads
        for thread in every:
            thread.join(0.2)
            while thread.is_alive() and time.monotonic() < until:
                # It computes and does not ask whose turn it is.
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Abandoned)
                )
                thread.join(0.1)
        stuck = [thread.name for thread in every if thread.is_alive()]
        if stuck:
            raise EnvironmentProblem(
                f"{', '.join(stuck[:4])} did not end within {_GRACE_S:g} s: {self._standstill.where() or 'it waits'}, "
                f"in a call that cannot be interrupted. {WHAT_IS_VIRTUAL} Restart the kernel before the next run."
            )

    def _live(self, rank: VirtualRank) -> None:
        """Be a rank, from the first line to the last."""
        become(rank)
        scheduler = self._simulation.scheduler
        try:
            scheduler.enter(rank.rank)
            torch.set_num_threads(1)
            with single_threaded_backward():
                try:
                    if self._trial is not None:
                        self._trial.goes_to_its_folder(rank.rank)
                    fn, args = loads_in_rank(self._call, rank.process.classes, rank.process.namespaces)
                    if self._init:
                        dist.init_process_group(
                            "virtual", store=self._store, rank=rank.rank, world_size=self._cluster.world_size
                        )
                    with devices_of(rank), Roofline(rank):
                        self._memories[rank.rank].begin()
                        result = fn(*args)
                        settle(rank)
                        threads.wait_for_all(rank)
                        rpc.ended(rank)
                        rank.drain()
                        self._memories[rank.rank].close()
                        if self._trial is not None:
                            self._trial.came_to_end(rank, result)
                    self._packed[rank.rank] = dump_result(result)
                finally:
                    if dist.is_initialized():
                        dist.destroy_process_group()
            scheduler.leave(rank.rank)
        except Abandoned:
            pass
        except BaseException as error:
            self._raised(rank, error)
        finally:
            become(None)
            self._events.put(None)

    def _raised(self, rank: VirtualRank, error: BaseException) -> None:
        scheduler = self._simulation.scheduler
        if self._trial is None or scheduler.has_ended:
            scheduler.abandon(RankError(rank.rank, error))
        else:
            self._trial.raised(rank, error)
            scheduler.leave(rank.rank)

    def _memory(self) -> RankMemory | None:
        rank = current_rank()
        return None if rank is None else rank.record.memory

    def _named_store(self, name: str) -> VirtualStore | None:
        if current_rank() is None:
            return None
        return self._stores.setdefault(name, VirtualStore(name)) if name else VirtualStore()

    def _deadlocked(self) -> BaseException:
        text, reports = describe_deadlock(self._simulation.scheduler.clocks)
        return DeadlockError(text, reports) if self._trial is None else self._trial.stands_still(text, reports)

    def conclude(self) -> Outcome:
        """Return what came of it, or raise what ended it."""
        simulation = self._simulation
        ends_ns = [rank.now_ns for rank in simulation.ranks]
        for rank in simulation.ranks:
            if rank.process.device is not None:
                ends_ns[rank.rank] = max(rank.now_ns, rank.device.now_ns)
                rank.record.rows.sort(key=attrgetter("start_ns"))  # what was issued first need not begin first
        records = [rank.record for rank in simulation.ranks]
        absent = [] if self._trial is None else self._trial.of_absent(len(records))
        ends_ns += [max((row.end_ns for row in record.rows), default=0) for record in absent]
        timeline = assemble([*records, *absent], ends_ns, left_open(simulation))
        fold = simulation.fold
        if fold is not None:
            self._notes |= differences(fold, [rank.record for rank in simulation.ranks])
        if self._cuda and not any(rank.process.accelerator.used for rank in simulation.ranks):
            self._notes[UNUSED] = 0
        notes = [Problem("not_modelled", rank, text, -1) for text, rank in self._notes.items()]
        timeline.problems += (*groups_of_some(simulation), *notes)
        timeline.tables |= memory_tables(self._memories)
        for rank in self._running:
            rank.record.work.mark(ends_ns[rank.rank])
            rank.record.rows.clear()
            rank.record.held.clear()
        timeline.tables["work"] = work_table([rank.record.work for rank in simulation.ranks])
        if fold is not None:
            drop_absent_ranks(fold, timeline, self._packed)
        output = self.ended()[1] if self._trial is None else self._trial.kept.texts
        if self._trial is not None:
            timeline.tables["attempt"] = self._trial.table()
        raise_what_ended(simulation, ends_ns, {"output": tuple(output), "timeline": timeline})
        results = [loads_in_notebook(data) for data in self._packed if data is not None]
        return Outcome(results, timeline, output, max(ends_ns), simulation.scheduler.switches)
