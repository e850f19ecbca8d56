"""One host's share of a run: its ranks through the local launcher, and all they say on its way to the notebook."""

from __future__ import annotations

import os
import selectors
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.launch.cgroup import oom_kills
from labkit.launch.cluster.link import Link
from labkit.launch.cluster.log_copies import LogSource
from labkit.launch.job import Job, base_environ, pack
from labkit.launch.local import default_start_method, ranks_started_by
from labkit.launch.processes import RankProcess

_TELL_EVERY = 0.2
_BACKLOG_BYTES = 16 << 20
_DRAIN_SECONDS = 1.0


@dataclass(frozen=True)
class HostOrder:
    """What the notebook asks of one host.

    Attributes:
        call: The function and its arguments, pickled by value.
        sources: Text of the notebook's cells.
        world_size: Number of ranks on all hosts.
        first_rank: The lowest of this host.
        group_rank: Which host this is.
        num_hosts: How many there are.
        backend: Name for ``init_process_group``.
        devices: One torch device name per rank of this host.
        gpus: The GPUs its ranks may see; empty for all there are.
        threads_per_rank: CPU threads of each rank, or None for an equal share of the cores.
        seed: Rank r draws from seed + r.
        init: Whether the default process group is made and destroyed around the function.
        master: Address and port of the store.
        cwd: The notebook's working directory, used where this host has it too.
        sys_path: The notebook's, of which this host adds what it has too.
    """

    call: bytes
    sources: Mapping[str, str]
    world_size: int
    first_rank: int
    group_rank: int
    num_hosts: int
    backend: str
    devices: tuple[str, ...]
    gpus: tuple[str, ...]
    threads_per_rank: int | None
    seed: int
    init: bool
    master: tuple[str, int]
    cwd: str
    sys_path: tuple[str, ...]


class AgentRun:
    """The ranks of one run on this host."""

    def __init__(self, link: Link, order: HostOrder, about: Mapping[str, Any], folder: str) -> None:
        """Start them; what they need on disk is made in this folder, which whoever started the agent removes."""
        self._link = link
        self._folder = tempfile.TemporaryDirectory(prefix="labkit-run-", dir=folder)
        self._processes = ranks_started_by(default_start_method())
        job = _job(order, about, self._folder.name)
        self._ranks = self._processes.start(pack(job), len(order.devices), record=True)
        self._selector = selectors.DefaultSelector()
        self._processes.register(self._selector)
        for rank in self._ranks:
            for kind, end in (("output", rank.output), ("channel", rank.channel), ("stacks", rank.stacks)):
                if end is not None:
                    self._selector.register(end, selectors.EVENT_READ, (kind, rank))
        self._logs = {rank.rank: LogSource(rank.log_path) for rank in self._ranks if rank.log_path is not None}
        self._exited: set[int] = set()
        self._open = len(self._ranks)
        self._tell_at = 0.0

    def select(self, others: selectors.DefaultSelector) -> list[tuple[selectors.SelectorKey, int]]:
        """Take in what ranks say, waiting a little for it; return which of these others are ready."""
        with selectors.DefaultSelector() as both:
            both.register(others, selectors.EVENT_READ)  # an epoll descriptor is readable when one of its own is
            if self._link.backlog < _BACKLOG_BYTES:
                both.register(self._selector, selectors.EVENT_READ)
            both.select(_TELL_EVERY / 2)
        if self._link.backlog < _BACKLOG_BYTES:  # a rank that prints faster than the network carries has to wait
            self._pump(0)
        if time.monotonic() > self._tell_at:
            self._tell()
        return others.select(0)

    def do(self, kind: str, value: Any) -> None:
        """Do what the notebook asks of a rank."""
        local_rank, word = value
        rank = self._ranks[local_rank]
        if kind == "tell":
            rank.tell(word)
        elif kind == "stack":
            self._processes.ask_for_stack(rank)

    def end(self) -> None:
        """End every rank, send what they left behind, and free everything."""
        self._processes.end()
        until = time.monotonic() + _DRAIN_SECONDS
        while self._open and time.monotonic() < until:
            self._pump(0.05)
        self._note_exits()
        self._tell()
        self._processes.forget()
        self._selector.close()
        for rank in self._ranks:
            rank.close()
        self._folder.cleanup()

    def _pump(self, seconds: float) -> None:
        self._processes.poll()
        for key, _ in self._selector.select(seconds):
            if key.data == "processes":
                self._processes.read_events()
                continue
            kind, rank = key.data
            data = rank.read(key.fileobj)
            if not data:
                self._selector.unregister(key.fileobj)
                self._open -= kind == "output"
            self._link.send("from", (rank.rank, kind, data))
        self._note_exits()

    def _note_exits(self) -> None:
        for rank in self._ranks:
            if rank.status is not None and rank.rank not in self._exited:
                self._exited.add(rank.rank)
                self._link.send("exited", (rank.rank, rank.status))

    def _tell(self) -> None:
        """Send what ranks recorded since, and the processor time they used."""
        began = time.monotonic()
        states = [
            (rank.rank, rank.pid, rank.cpu_seconds(), rank.status is None, self._changed(rank)) for rank in self._ranks
        ]
        self._link.send("state", (time.monotonic_ns(), oom_kills(), states))
        # A long record takes longer to compare: at most a fifth of the time goes into looking.
        self._tell_at = time.monotonic() + max(_TELL_EVERY, 4 * (time.monotonic() - began))

    def _changed(self, rank: RankProcess) -> list[tuple[int, bytes]]:
        source = self._logs.get(rank.rank)
        return source.changed() if source is not None else []


def _job(order: HostOrder, about: Mapping[str, Any], folder: str) -> Job:
    threads = order.threads_per_rank or max(1, about["cores"] // len(order.devices))
    environ = base_environ(order.master[0], order.master[1], about["interface"])
    return Job(
        call=order.call,
        sources=order.sources,
        world_size=order.world_size,
        backend=order.backend,
        devices=order.devices,
        threads_per_rank=threads,
        seed=order.seed,
        init=order.init,
        environ=environ | ({"CUDA_VISIBLE_DEVICES": ",".join(order.gpus)} if order.gpus else {}),
        cwd=order.cwd if os.path.isdir(order.cwd) else folder,  # noqa: PTH112  # the rank gets text
        sys_path=(*sys.path, *(each for each in order.sys_path if each not in sys.path and Path(each).exists())),
        first_rank=order.first_rank,
        group_rank=order.group_rank,
        num_hosts=order.num_hosts,
    )
