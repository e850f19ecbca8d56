"""run() and the worlds it takes a function to."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from labkit.errors import ConfigError

if TYPE_CHECKING:
    from labkit.timeline import Timeline


@dataclass(frozen=True)
class LocalWorld:
    """Real processes on this host."""

    world_size: int
    device: str = "auto"
    threads_per_rank: int | None = None
    start_method: str = "auto"


@dataclass(frozen=True)
class Run:
    """What came of a run."""

    results: list[Any]
    timeline: Timeline | None
    output: list[str]
    world: LocalWorld


def local(
    world_size: int, *, device: str = "auto", threads_per_rank: int | None = None, start_method: str = "auto"
) -> LocalWorld:
    """Return a world of real processes on this host."""
    if world_size < 1:
        raise ConfigError(f"{world_size} ranks were asked for; a world has at least 1.")
    return LocalWorld(world_size, device, threads_per_rank, start_method)


def run(
    fn: Callable[..., object],
    *args: object,
    on: LocalWorld | None = None,
    timeout: float | None = 120.0,
    seed: int = 0,
    init: bool = True,
    echo: bool = True,
) -> Run:
    """Return what fn(*args) gives on every rank of a world."""
    from labkit.launch import job as jobs
    from labkit.launch.preloaded import ForkedRanks
    from labkit.launch.supervisor import Supervisor

    world = on or local(2)
    call = jobs.pack_call(fn, args)
    processes = ForkedRanks()
    from torch.distributed import TCPStore

    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    port = listener.getsockname()[1]
    store = TCPStore("127.0.0.1", port, None, True, wait_for_workers=False, master_listen_fd=os.dup(listener.fileno()))
    threads = world.threads_per_rank or max(1, len(os.sched_getaffinity(0)) // world.world_size)
    job = jobs.Job(
        call=call,
        sources=jobs.notebook_sources(),
        world_size=world.world_size,
        backend="gloo",
        devices=("cpu",) * world.world_size,
        threads_per_rank=threads,
        seed=seed,
        init=init,
        record=True,
        environ=jobs.base_environ(port),
        cwd=os.getcwd(),
        sys_path=tuple(sys.path),
    )
    try:
        ranks = processes.start(jobs.pack(job), world.world_size, True)
        supervisor = Supervisor(processes, ranks, timeout, echo)
        results = supervisor.supervise()
        return Run(results, None, supervisor.output(), world)
    finally:
        processes.end()
        listener.close()
        del store
