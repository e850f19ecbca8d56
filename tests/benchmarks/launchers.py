"""Ways to take one function to several ranks on this host: ours, and the peers it is measured beside.

Each launcher is a generator function of the world size: it yields once per call, with what the ranks returned, so that
what it keeps between calls (a zygote, a pool of engines) is there for the next. Its first call is the cold one.
The job is one all_reduce; every rank returns its rank and the sum.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist

Results = list[tuple[int, float]]


def all_reduce_once() -> tuple[int, float]:
    """Return this rank and the sum over ranks of (rank + 1); the process group is there already."""
    value = torch.tensor([float(dist.get_rank() + 1)])
    dist.all_reduce(value)
    return dist.get_rank(), float(value.item())


def _join(rank: int, world_size: int, meeting: str) -> tuple[int, float]:
    """Join a group that meets in a file, do the job, leave."""
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world_size)
    result = all_reduce_once()
    dist.destroy_process_group()
    return result


def _write(folder: Path, result: tuple[int, float]) -> None:
    (folder / f"{result[0]}.json").write_text(json.dumps(result))


def _read(folder: Path, world_size: int) -> Results:
    return [tuple(json.loads((folder / f"{rank}.json").read_text())) for rank in range(world_size)]


def labkit_run(world_size: int) -> Iterator[Results]:
    import labkit

    def job() -> tuple[int, float]:  # travels by value, as a function from a notebook does
        value = torch.tensor([float(dist.get_rank() + 1)])
        dist.all_reduce(value)
        return dist.get_rank(), float(value.item())

    while True:
        yield labkit.run(job, on=labkit.local(world_size, device="cpu"), echo=False).results


def _spawned(rank: int, world_size: int, folder: str) -> None:
    _write(Path(folder), _join(rank, world_size, f"{folder}/meeting"))


def mp_spawn(world_size: int) -> Iterator[Results]:
    import torch.multiprocessing as mp

    while True:
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(_spawned, (world_size, folder), nprocs=world_size)
            yield _read(Path(folder), world_size)


def plain_fork(world_size: int) -> Iterator[Results]:
    """Fork this process: the least that fresh processes cost, and unsafe where threads or CUDA are about."""
    while True:
        with tempfile.TemporaryDirectory() as folder:
            children = []
            for rank in range(world_size):
                child = os.fork()
                if child == 0:
                    try:
                        _spawned(rank, world_size, folder)
                    finally:
                        os._exit(0)
                children.append(child)
            for child in children:
                os.waitpid(child, 0)
            yield _read(Path(folder), world_size)


def torchrun(world_size: int) -> Iterator[Results]:
    while True:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world_size}"]
            subprocess.run([*command, "-m", "tests.benchmarks.torchrun_job", folder], check=True, capture_output=True)
            yield _read(Path(folder), world_size)


def _notebook_job(folder: str) -> None:
    dist.init_process_group("gloo")
    _write(Path(folder), all_reduce_once())
    dist.destroy_process_group()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


def notebook_launcher(world_size: int) -> Iterator[Results]:
    import contextlib
    import io

    from accelerate import notebook_launcher as launch

    while True:
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            launch(_notebook_job, (folder,), num_processes=world_size, use_port=str(_free_port()))
            results = _read(Path(folder), world_size)
        yield results


def torchrunx(world_size: int) -> Iterator[Results]:
    from torchrunx import Launcher

    os.environ["TORCHRUNX_LOG_DIR"] = ""  # else it writes log files into the working directory
    while True:
        launcher = Launcher(hostnames=["localhost"], workers_per_host=world_size, backend="gloo")
        yield launcher.run(all_reduce_once).results["localhost"]


def ipyparallel(world_size: int) -> Iterator[Results]:
    """A pool of engines that stays: its processes, and whatever a call left in them, are there for the next call."""
    import ipyparallel as ipp

    with tempfile.TemporaryDirectory() as folder, ipp.Cluster(n=world_size, log_level=40) as client:
        view = client[:]
        for call in range(1_000_000):
            waiting = [
                client[rank].apply_async(_join, rank, world_size, f"{folder}/meeting-{call}")
                for rank in range(world_size)
            ]
            yield [tuple(each.get(timeout=60)) for each in waiting]
        view.clear()


LAUNCHERS: dict[str, Callable[[int], Iterator[Results]]] = {
    "labkit.run": labkit_run,
    "plain fork": plain_fork,
    "mp.spawn": mp_spawn,
    "torchrun": torchrun,
    "notebook_launcher": notebook_launcher,
    "torchrunx": torchrunx,
    "ipyparallel": ipyparallel,
}
