"""Attempts of a run that may fail: what comes when, who sees it, and when all ranks are started again.

An attempt is a run of its own: its ranks have fresh modules and groups, and the time goes on. A rank that is lost
stands where it is until the attempt is over; what its program does while it is unwound then reaches nobody. An agent
looks at its ranks as torchrun's does, and ends them all when one has ended.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from labkit.failures.records import Cut, Failure, Flip, Full, Hang, Kill, Pause, PowerCut, Slow
from labkit.simulator.cluster import Cluster
from labkit.simulator.disk_calls import DiskCalls
from labkit.simulator.endings import AttemptError, RankError
from labkit.simulator.failure_plan import FailurePlan, Kept
from labkit.simulator.flips import flip_bit
from labkit.simulator.program_end import end_of, optimizers_kept
from labkit.simulator.record import OPEN, RankRecord, Row, at
from labkit.simulator.state import Simulation, VirtualRank
from labkit.timeline.columns import Table
from labkit.timeline.span import Lane
from labkit.words import plural

KIND = "failure"
"""Kind of the spans that show a rank's injected failures."""
NCCL_S, GLOO_S = 600, 1800
"""After how many seconds a call is given up that nobody answers: torch's own limits for the two."""


class Trial:
    """One attempt.

    Attributes:
        number: How many came before.
        cluster: On what its ranks run: fewer nodes than there were, where some are lost and no spare is left.
        calls: What ranks reach their disks by, None where they have none.
        kept: What goes on from one to the next.
        ended_ns: When all ranks were ended, None while they were not.
    """

    def __init__(self, plan: FailurePlan, cluster: Cluster) -> None:
        """Be the first attempt of a plan."""
        self.plan, self.number = plan, plan.first
        self.cluster = self._whole = cluster
        self._back_ns: list[int] = []  # when each lost node is back
        self.calls: DiskCalls | None = None
        self._base_ns = 0
        self.kept = Kept.of(cluster.world_size)
        if plan.told is not None:
            plan.told(self.kept)
        self._begin()

    def _begin(self) -> None:
        self.ended_ns: int | None = None
        self._first: tuple[int, int, str, BaseException | None] | None = None
        self._dark: set[int] = set()  # nodes that lost their power
        self._counts: dict[int, int] = {}
        self._timed = False
        self._from = [len(rows) for rows in self.kept.rows]

    @contextmanager
    def with_disk(self, cluster: Cluster) -> Iterator[None]:
        """Have the disk of the plan for all attempts: in its folder, or in one that is there for so long."""
        about = self.plan.disk
        if about is None:
            yield
            return
        with ExitStack() as stack:
            folder = Path(about.folder or stack.enter_context(TemporaryDirectory(prefix="labkit-disk-"))).resolve()
            roots = [folder / f"node{node}" for node in range(cluster.num_nodes)] if about.per_node else [folder]
            for root in roots:
                root.mkdir(exist_ok=True)
            self.calls = DiskCalls(about, list(map(str, roots)), cluster.node)
            self.kept.disks = self.calls.disks
            yield

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let ranks reach their disk, and what they make be kept that their end is known by."""
        with ExitStack() as stack:
            if self.calls is not None:
                stack.enter_context(self.calls.installed())
            if self.plan.told is not None:
                self._optimizers: dict[int, list[Any]] = {}
                stack.enter_context(optimizers_kept(self._optimizers))
            yield

    def came_to_end(self, rank: VirtualRank, result: object) -> None:
        """Note what a rank ends with; called in its thread."""
        if self.plan.told is not None:
            self.kept.ends[rank.rank] = end_of(self._optimizers.get(rank.rank, []), result)

    def goes_to_its_folder(self, rank: int) -> None:
        """Let a rank begin in the folder of its disk; called in its thread."""
        if self.calls is not None:
            os.chdir(self.calls.disk_of(rank).root)

    def environ(self) -> dict[str, str]:
        """Return what torchrun tells ranks of their restarts."""
        return {
            "TORCHELASTIC_RUN_ID": "labkit",
            "TORCHELASTIC_RESTART_COUNT": str(self.number),
            "TORCHELASTIC_MAX_RESTARTS": str(self.plan.restarts.most),
        }

    def begin(self, simulation: Simulation, silence: Callable[[int], None]) -> None:
        """Let an attempt begin.

        Args:
            simulation: Its ranks, which have not begun.
            silence: Called with a rank that must be heard no more.
        """
        self._simulation, self._scheduler, self._mute = simulation, simulation.scheduler, silence
        if self.calls is not None:
            self.calls.silent = set()  # files of the attempt before keep the one they know
        simulation.trial = self
        for rank in simulation.ranks:
            rank.clock.now_ns = self._base_ns
            rank.record.rows, rank.record.work = self.kept.rows[rank.rank], self.kept.works[rank.rank]
        self._of_rank: dict[tuple[int, str], list[Failure]] = {}
        for one in self.plan.failures:
            if one.at_s is not None:
                if not any(one is other for other in self.kept.came):
                    self._timed = True
                    at_ns = max(round(one.at_s * 1e9), self._base_ns)
                    self._scheduler.act(at_ns, partial(self._at_time, one, at_ns))
            elif one.attempt == self.number and self._is_there(one):
                kind = "step" if one.step is not None else "call" if one.call is not None else "file"
                self._of_rank.setdefault((self._whose(one), kind), []).append(one)

    def _is_there(self, one: Failure) -> bool:
        """Return whether what it befalls is part of the cluster, which may have fewer nodes than it had."""
        cluster = self.cluster
        return max(one.ranks, default=0) < cluster.world_size and getattr(one, "node", 0) < cluster.num_nodes

    def _whose(self, one: Failure) -> int:
        if one.of is not None:
            return one.of
        node, cluster = getattr(one, "node", 0), self._simulation.cluster
        return next(rank for rank in range(cluster.world_size) if cluster.node(rank) == node)

    # ---- events of ranks

    def step(self, rank: VirtualRank, optimizer: Any) -> None:
        """Note that a rank begins a step."""
        for one in self._event(rank, "step", "", ""):
            if isinstance(one, Flip):
                flip_bit(one, optimizer.param_groups[0]["params"][:1])
        self.kept.num_steps[rank.rank] += 1

    def call(self, rank: VirtualRank, op: str, inputs: list[torch.Tensor]) -> list[Flip]:
        """Note that a rank makes a call; return what is to be turned over in what it gets."""
        later = []
        for one in self._event(rank, "call", op, ""):
            if isinstance(one, Flip):
                if one.where == "wire":
                    later.append(one)
                else:
                    flip_bit(one, inputs)
        return later

    def file(self, rank: VirtualRank, op: str, path: str) -> None:
        """Note that a rank is about to change a file, or to sync one."""
        self._event(rank, "file", op, path)

    def _event(self, rank: VirtualRank, kind: str, op: str, path: str) -> list[Failure]:
        if self._timed or rank.clock.lost:
            rank.turn()
        if self.plan.watch is not None:
            self.plan.watch(rank.rank, kind, op, path)
        due = [
            one for one in self._of_rank.get((rank.rank, kind), ()) if _counts(one, op, path) and self._is_next(one)
        ]  # fmt: skip
        for one in due:
            rank.turn()  # what others did before has happened
            self._comes(one, rank.now_ns)
            if isinstance(one, Pause):
                rank.turn()  # who does not stand still goes first
        if rank.clock.lost:
            self._scheduler.stand(rank.clock.number)
        return due

    def _is_next(self, one: Failure) -> bool:
        self._counts[id(one)] = count = self._counts.get(id(one), 0) + 1
        first = one.step or one.call or one.file or 0
        return first <= count < first + (one.times if isinstance(one, Pause) else 1)

    def _at_time(self, one: Failure, now_ns: int) -> None:
        if self._scheduler.all_done or self.ended_ns is not None:
            return  # the program has come to its end before, or this attempt: then it comes in the next
        self.kept.came.append(one)
        if self._is_there(one):
            self._comes(one, now_ns)

    # ---- what comes

    def _comes(self, one: Failure, now_ns: int) -> None:
        simulation = self._simulation
        mine = [self._whose(one)]
        if isinstance(one, PowerCut):
            self._dark.add(one.node)
            mine = [rank.rank for rank in simulation.ranks if simulation.cluster.node(rank.rank) == one.node]
            self._note(mine[0], now_ns, f"{one.name} of node {one.node}", now_ns)
            if self.calls is not None:
                self.calls.lose_power(one.node, one.keeps, alone=self._has_own_disk())
        elif isinstance(one, Slow):
            simulation.ranks[one.rank].roofline.slow_down(one.factor)
            self._note(one.rank, now_ns, f"{one.factor:g} times slower", OPEN)
        elif isinstance(one, Pause):
            clock = simulation.ranks[one.rank].clock
            clock.now_ns = max(clock.now_ns, now_ns) + round(one.seconds * 1e9)
            self._note(one.rank, now_ns, one.name, clock.now_ns)
        elif isinstance(one, Cut):
            simulation.network.cut |= {(one.rank, one.other), (one.other, one.rank)}
            self._note(one.rank, now_ns, f"link to rank {one.other} cut", OPEN)
        elif isinstance(one, Full):
            self._note(mine[0], now_ns, f"{one.name} on node {one.node}", OPEN)
            if self.calls is not None:
                self.calls.fill(one.node)
        elif isinstance(one, Flip):
            self._note(one.rank, now_ns, f"{one.name} ({one.where})", now_ns)
        elif isinstance(one, Hang):
            self._lose(one.rank, now_ns, one.name, ended=False)
        if isinstance(one, Kill | PowerCut):
            for rank in mine:
                self._lose(rank, now_ns, one.name, ended=True)
                self._ends(rank, now_ns, f"{_how(one)} {one.when}", None)

    def _has_own_disk(self) -> bool:
        return self._simulation.cluster.num_nodes == 1 or (self.plan.disk is not None and self.plan.disk.per_node)

    def _note(self, rank: int, start_ns: int, words: str, end_ns: int) -> None:
        self.kept.rows[rank].append(Row(Lane.HOST, start_ns, end_ns, words, KIND))

    def _lose(self, rank: int, now_ns: int, words: str, *, ended: bool) -> None:
        for row in self.kept.rows[rank][self._from[rank] :]:
            if row.end_ns == OPEN and ended:
                row.end_ns, row.failed = max(row.start_ns, now_ns), True
        self._scheduler.lose(rank, ended=ended)
        self._silence(rank)
        self._note(rank, now_ns, words, OPEN)

    def raised(self, rank: VirtualRank, error: BaseException) -> None:
        """Note that the program of a rank raised: its process ends."""
        self._ends(rank.rank, rank.now_ns, f"raised {type(error).__name__}", error)
        self._note(rank.rank, rank.now_ns, f"raised {type(error).__name__}", OPEN)

    def _ends(self, rank: int, now_ns: int, how: str, error: BaseException | None) -> None:
        """Let others see that a process has ended, and the agent when it looks next."""
        words = f"Connection closed by peer: rank {rank} is gone"
        self._simulation.rounds.lost(rank, now_ns, words)
        self._simulation.exchange.lost(rank, now_ns, words)
        if self._first is None:
            self._first = (rank, now_ns, how, error)
            every_ns = round(self.plan.restarts.monitor_s * 1e9)
            looks_ns = (now_ns // every_ns + 1) * every_ns
            self._scheduler.act(looks_ns, partial(self._all_end, looks_ns))

    def _all_end(self, now_ns: int) -> None:
        assert self._first is not None
        rank, at_ns, how, error = self._first
        self._over(now_ns)
        size = len(self._simulation.ranks)
        if error is not None:
            self._scheduler.abandon(RankError(rank, error))
            return
        text = (
            f"rank {rank} of {size} failed first: {how}\n\nIt ended at {at_ns / 1e9:.6f} s of virtual time, as "
            f"failures= asked{self._stood(rank)}. The agent saw it at {now_ns / 1e9:.6f} s and ended the others."
        )
        self._scheduler.abandon(AttemptError(text, rank, how))

    def _stood(self, rank: int) -> str:
        rows = [
            row for row in self.kept.rows[rank][self._from[rank] :] if row.lane == Lane.COMMUNICATION and row.failed
        ]
        return f", in {rows[-1].kind}{at(rows[-1].source)}" if rows else ""

    def stands_still(self, text: str, reports: dict[int, str]) -> AttemptError:
        """Return how the attempt ends in which nobody can go on: by the first time limit of a call, if there is one."""
        waiting = [clock for clock in self._scheduler.clocks if clock.waiting is not None and not clock.lost]
        if not waiting:
            ended_ns = max(clock.now_ns for clock in self._scheduler.clocks)
            self._over(ended_ns)
            return AttemptError(
                f"Nobody waits for a rank that hangs: no time limit ends the run.\n\n{text}", None, "hangs"
            )
        first = min(waiting, key=lambda clock: (clock.now_ns, clock.number))
        limit_s = NCCL_S if self._simulation.ranks[first.rank].process.accelerator is not None else GLOO_S
        self._over(first.now_ns + limit_s * 10**9)
        assert first.waiting is not None
        words = (
            f"[Rank {first.rank}] Watchdog caught collective operation timeout: {first.waiting.text()} ran for "
            f"{limit_s * 1000} milliseconds before timing out."
        )
        return AttemptError(f"{words}\n\n{text}", None, "a call's time was up", reports, is_hang=True)

    def _silence(self, rank: int) -> None:
        self._mute(rank)
        if self.calls is not None:
            self.calls.silent.add(rank)

    def _over(self, now_ns: int) -> None:
        self.ended_ns = now_ns
        for rank in self._simulation.ranks:
            self._silence(rank.rank)

    # ---- the end

    def next_after(self, failure: BaseException | None, texts: list[str]) -> bool:
        """Note how the attempt ended, and return whether another follows, which this then is.

        Args:
            failure: What ended it, None for its program's end.
            texts: What ranks printed in it.
        """
        self._close(failure)
        for rank, text in enumerate(texts):
            self.kept.texts[rank] += text
        restarts = self.plan.restarts
        if not isinstance(failure, RankError | AttemptError) or self.ended_ns is None or self.number >= restarts.most:
            return False
        self.number += 1
        meet_ns = self._finds_nodes(self.ended_ns + round(restarts.stop_s * 1e9))
        self._base_ns = meet_ns + round((restarts.rendezvous_s + restarts.start_s) * 1e9)
        nodes = self.cluster.num_nodes
        where = "" if nodes == self._whole.num_nodes else f" on {plural(nodes, 'node')}"
        for rank in range(self.cluster.world_size):
            self._note(rank, self.ended_ns, f"restart {self.number} of {restarts.most}{where}", self._base_ns)
        self._begin()
        return True

    def _finds_nodes(self, now_ns: int) -> int:
        """Let spares take the place of lost nodes, go on with fewer, or wait; return when those who go on can meet."""
        restarts, whole = self.plan.restarts, self._whole
        self._back_ns = sorted(
            [back_ns for back_ns in self._back_ns if back_ns > now_ns]
            + [now_ns + round(restarts.boot_s * 1e9)] * len(self._dark)
        )
        missing = max(0, len(self._back_ns) - restarts.spares)
        if missing and restarts.min_nodes is not None and whole.num_nodes - missing >= restarts.min_nodes:
            nodes = whole.num_nodes - missing
            self.cluster = replace(whole, world_size=nodes * whole.gpus_per_node)
            return now_ns
        self.cluster = whole
        return max(now_ns, self._back_ns[missing - 1]) if missing else now_ns

    def of_absent(self, ranks: int) -> list[RankRecord]:
        """Return what ranks did whose nodes are gone in the end, beyond so many that are there."""
        return [
            RankRecord(rank, rows, work=self.kept.works[rank])
            for rank, rows in enumerate(self.kept.rows) if rank >= ranks
        ]  # fmt: skip

    def _close(self, failure: BaseException | None) -> None:
        ranks = self._simulation.ranks
        for rank in ranks:
            if self.ended_ns is not None:
                rank.clock.now_ns = max(rank.now_ns, self.ended_ns)
            for row in self.kept.rows[rank.rank][self._from[rank.rank] :]:
                if row.end_ns == OPEN and failure is not None:
                    row.end_ns = max(row.start_ns, rank.now_ns)
                    row.failed = row.failed or row.kind != KIND
                if row.group and (self.number or failure is not None) and self.plan.restarts.most:
                    row.group += f", attempt {self.number + 1}"
        cause = "" if failure is None else failure.how if isinstance(failure, AttemptError) else type(failure).__name__
        if isinstance(failure, RankError):
            cause = f"rank {failure.rank} raised {type(failure.error).__name__}"
        self.kept.attempts.append((self.number, self._base_ns, max(rank.now_ns for rank in ranks), cause))

    def table(self) -> Table:
        """Return the attempts as a timeline keeps them: number, start_ns, end_ns, cause: what ended each, or ""."""
        *numbers, causes = zip(*self.kept.attempts, strict=True)
        names = ("number", "start_ns", "end_ns")
        table: Table = {name: np.array(column, dtype=np.int64) for name, column in zip(names, numbers, strict=True)}
        return table | {"cause": np.array(causes, dtype=np.str_)}


def _counts(one: Failure, op: str, path: str) -> bool:
    if one.op and one.op != op:
        return False
    return not one.path or fnmatch.fnmatch(path, one.path) or fnmatch.fnmatch(PurePath(path).name, one.path)


def _how(one: Failure) -> str:
    return "killed by SIGKILL" if isinstance(one, Kill) else "its node lost its power"
