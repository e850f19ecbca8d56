"""One run in the local world, from a function to its results or its error."""

from __future__ import annotations

import builtins
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from labkit.errors import EnvironmentProblem, RunError
from labkit.launch.devices import Placement
from labkit.launch.job import Job, base_environ, notebook_sources, pack, pack_call
from labkit.launch.processes import RankProcesses
from labkit.launch.supervisor import Supervisor
from labkit.timeline import Timeline


@dataclass(frozen=True)
class Order:
    """What run() was asked for, whatever the world.

    Attributes:
        function: The learner's function.
        args: Its positional arguments.
        timeout: Seconds the run may take, or None.
        stall: Seconds without any progress that count as a deadlock, or None.
        seed: Rank r draws from seed + r.
        init: Whether the default process group is made and destroyed around the function.
        echo: Whether output is shown while the ranks run.
        watch: Given what was recorded since, about ten times a second while the ranks run, or None.
    """

    function: Callable[..., object]
    args: tuple[object, ...]
    timeout: float | None
    stall: float | None
    seed: int
    init: bool
    echo: bool
    watch: Callable[[Timeline], None] | None = None


@dataclass(frozen=True)
class Outcome:
    """What came of an order: the results, what was printed, what was recorded, and how long it took."""

    results: list[Any]
    output: tuple[str, ...]
    timeline: Timeline | None
    seconds: float


def default_start_method() -> str:
    """Return "zygote" where forking a preloaded process is possible and safe, else "spawn"."""
    there = all(hasattr(os, name) for name in ("fork", "memfd_create"))
    return "zygote" if sys.platform == "linux" and there else "spawn"


def launch_local(
    order: Order, placement: Placement, threads_per_rank: int, start_method: str, gpus: Sequence[str] = ()
) -> Outcome:
    """Return what came of the order on real processes of this host.

    Args:
        order: What to run.
        placement: Backend and devices.
        threads_per_rank: CPU threads of each rank.
        start_method: "zygote" or "spawn".
        gpus: The GPUs the ranks may see, as CUDA_VISIBLE_DEVICES names them; empty for all there are.

    Raises:
        ConfigError: If the function, an argument or a result cannot travel.
        EnvironmentProblem: If processes cannot be started.
        RankFailed: If a rank failed.
        RunTimeout: If the time limit passed, or no rank could go on.
    """
    began = time.monotonic()
    call = pack_call(order.function, order.args)
    world_size = len(placement.devices)
    show = _show if order.echo else None
    if show is not None and placement.note:
        show(f"[labkit] {placement.note}")
    processes = ranks_started_by(start_method)
    with _store() as port:
        job = Job(
            call=call,
            sources=notebook_sources(),
            world_size=world_size,
            backend=placement.backend,
            devices=placement.devices,
            threads_per_rank=threads_per_rank,
            seed=order.seed,
            init=order.init,
            environ=base_environ("127.0.0.1", port) | ({"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {}),
            cwd=os.getcwd(),  # noqa: PTH109  # the rank gets text
            sys_path=tuple(sys.path),
        )
        results, output, timeline = supervised(order, processes, pack(job), world_size, show)
    return Outcome(results, output, timeline, time.monotonic() - began)


def supervised(
    order: Order, processes: RankProcesses, payload: bytes, world_size: int, show: Callable[[str], None] | None
) -> tuple[list[Any], tuple[str, ...], Timeline | None]:
    """Start ranks and watch them; return results, output and timeline once all have ended, however it came out.

    Raises:
        RunError: If the run did not finish; the error has the output and the timeline until then.
    """
    supervisor: Supervisor | None = None
    failure: RunError | None = None
    results: list[Any] = []
    try:
        ranks = processes.start(payload, world_size, record=True)
        supervisor = Supervisor(
            processes, ranks, timeout=order.timeout, stall=order.stall, show=show, watch=order.watch
        )
        results = supervisor.supervise()
    except RunError as error:
        failure = error
    finally:
        with _no_interrupt():
            processes.end()
            output, timeline = _collect(supervisor, completed=failure is not None or bool(results))
            processes.forget()
    if failure is not None:
        failure.output, failure.timeline = output, timeline
        raise failure
    return results, output, timeline


def _collect(supervisor: Supervisor | None, *, completed: bool) -> tuple[tuple[str, ...], Timeline | None]:
    """Return the output and the timeline of a run whose ranks have ended, and close its descriptors."""
    if supervisor is None:
        return (), None
    try:
        if not completed:  # interrupted: nobody will see them
            return (), None
        supervisor.drain()
        return supervisor.finish_output(), supervisor.timeline()
    finally:
        supervisor.close()


def ranks_started_by(start_method: str) -> RankProcesses:
    """Return what starts ranks by this method, "zygote" or "spawn"."""
    if start_method == "zygote":
        from labkit.launch.preloaded import ForkedRanks

        return ForkedRanks()
    from labkit.launch.spawn import SpawnedRanks

    return SpawnedRanks()


@contextmanager
def _store() -> Iterator[int]:
    """Host the store that ranks meet at, on a port the system picks and this process keeps: it cannot be taken.

    The socket is IPv4: on ``[::]`` TCPStore asks the resolver for the name of each peer, 5 s where packets get lost.
    """
    from labkit.torch_port.stores import host_store

    try:
        listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    except OSError as error:
        raise EnvironmentProblem(
            f"No port can be opened on 127.0.0.1: {error.strerror}. `labkit doctor` looks at ports, limits and memory."
        ) from error
    with listener:
        store = host_store(listener)
        yield listener.getsockname()[1]
        del store


@contextmanager
def _no_interrupt() -> Iterator[None]:
    """Let a second Ctrl-C not cut short the cleaning up after the first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before if before is not None else signal.SIG_DFL)


def _show(line: str) -> None:
    builtins.print(line, flush=True)
