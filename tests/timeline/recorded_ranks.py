"""Real ranks for these tests: forked from a server that has torch loaded, recorded, read back."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from torch.distributed import TCPStore

from labkit.launch import recording

_store: TCPStore | None = None
_CONTEXT = multiprocessing.get_context("forkserver" if hasattr(os, "fork") else "spawn")
if hasattr(os, "fork"):
    _CONTEXT.set_forkserver_preload(
        [
            "pytest",
            "torch",
            "torch.distributed",
            "labkit.launch.recording.gatherings",
            "labkit.launch.recording.recorded_group",
            "labkit.launch.recording.remote_calls",
        ]
    )


def start_ranks(
    program: Callable[..., Any], num_ranks: int, folder: Path, *args: Any, record: bool = True, capacity: int = 10_000
) -> list[tuple[Any, Connection]]:
    """Start program(rank, num_ranks, *args) in num_ranks processes; each sends back its result or its traceback."""
    global _store
    # The store must outlive every rank, so no rank hosts it.
    _store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    port = _store.port
    started = []
    for rank in range(num_ranks):
        ours, theirs = _CONTEXT.Pipe()
        process = _CONTEXT.Process(
            target=_rank, args=(theirs, program, rank, num_ranks, port, folder, record, capacity, args)
        )
        process.start()
        theirs.close()
        started.append((process, ours))
    return started


def run_ranks(program: Callable[..., Any], num_ranks: int, folder: Path, *args: Any, **options: Any) -> list[Any]:
    """Return what each rank returned; raise with a rank's traceback, or when 60 seconds were not enough."""
    started = start_ranks(program, num_ranks, folder, *args, **options)
    try:
        return [_result(rank, ours) for rank, (_, ours) in enumerate(started)]
    finally:
        stop_ranks(started)


def stop_ranks(started: Sequence[tuple[Any, Connection]]) -> None:
    """Leave no process behind."""
    for process, ours in started:
        process.join(0.5)
        if process.is_alive():
            process.kill()
            process.join()
        ours.close()


def record_of(folder: Path, num_ranks: int) -> Any:
    """Return the timeline of a run whose logs lie in folder."""
    return recording.assemble([recording.read_log(folder / f"{rank}.log") for rank in range(num_ranks)])


def _result(rank: int, ours: Connection) -> Any:
    if not wait([ours], timeout=300):
        raise TimeoutError(f"rank {rank} said nothing for 60 s")
    try:
        kind, value = ours.recv()
    except EOFError:
        raise RuntimeError(f"rank {rank} died") from None
    if kind == "error":
        raise RuntimeError(f"rank {rank} failed:\n{value}")
    return value


def _rank(
    pipe: Connection,
    program: Callable[..., Any],
    rank: int,
    num_ranks: int,
    port: int,
    folder: Path,
    record: bool,
    capacity: int,
    args: tuple[Any, ...],
) -> None:
    import torch

    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(num_ranks))
    os.environ.update(TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RESTART_COUNT="0")
    try:
        if record:
            recording.install(folder / f"{rank}.log", rank, capacity=capacity)
        answer = ("result", program(rank, num_ranks, *args))
        recording.close()
    except BaseException:
        answer = ("error", traceback.format_exc())
    pipe.send(answer)
    os._exit(0)
