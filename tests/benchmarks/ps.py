"""Pushes per second to the solution's servers beside a server written as PyTorch's tutorial on batch-updating teaches.

The peer, after "Implementing Batch RPC Processing Using Asynchronous Executions" (PyTorch tutorials): parameters as a
list of .grad buffers behind one lock, an optimizer's step when the last trainer has come, and a future of the whole
parameters for everybody. Written anew here. Both serve the same processes, one after the other.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.distributed import rpc
from torch.futures import Future

import labkit
from labkit.lessons import source
from tests.benchmarks.table import Bar, table

SOLUTION = Path(__file__).parents[2] / "solutions" / "06_parameter_server.py"
SIZES = (1_000, 100_000, 1_000_000)
PEER, SYNC, ASYNC = "tutorial's batch server", "SyncServer", "AsyncServer"


def solution(name: str) -> Any:
    """Return a class of lesson 06's solution: its given and exercise cells, and nothing else of it, are run."""
    names: dict[str, Any] = {"__name__": "__main__"}  # so its classes travel to the ranks by value, as a notebook's
    for cell in source.load(SOLUTION).cells:
        if cell.role in ("given", "exercise"):
            exec(compile(cell.source, f"{SOLUTION.name}:{cell.id}", "exec", dont_inherit=True), names)
    return names[name]


class BatchUpdatingServer:
    """Sums gradients into .grad, and lets an optimizer step when all trainers have pushed."""

    def __init__(self, weight: torch.Tensor, num_trainers: int, lr: float) -> None:
        self.parameter = nn.Parameter(weight.clone())
        self.parameter.grad = torch.zeros_like(weight)
        self.optimizer = torch.optim.SGD([self.parameter], lr=lr)
        self.lock, self.future = threading.Lock(), Future[Any]()
        self.num_trainers, self.seen = num_trainers, 0

    @rpc.functions.async_execution
    def push(self, worker: int, version: int, gradient: torch.Tensor) -> Future[Any]:
        """Add a gradient; answer with the parameters after the step."""
        with self.lock:
            assert self.parameter.grad is not None
            self.parameter.grad += gradient
            self.seen += 1
            future = self.future
            if self.seen == self.num_trainers:
                self.parameter.grad /= self.num_trainers
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=False)
                self.seen, self.future = 0, Future()
                future.set_result((version + 1, self.parameter.detach()))
        return future


def push_many(server: Any, worker: int, size: int, num_pushes: int) -> float:
    """Return the seconds that many pushes took this worker, after three that nobody counts."""
    gradient = torch.ones(size)
    version = 0
    begin = 0.0
    for number in range(num_pushes + 3):
        if number == 3:
            begin = time.perf_counter()
        version, _ = server.rpc_sync().push(worker, version, gradient)
    return time.perf_counter() - begin


def take_turns(makers: dict[str, Any], sizes: tuple[int, ...], num_pushes: int, num_repeats: int) -> Any:
    """Return, on rank 0, for each server and size the seconds of each repeat, of the slowest worker."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="You are using a Backend")
        rpc.init_rpc(f"rank{rank}", rank=rank, world_size=world_size)
    found: dict[str, dict[int, list[float]]] = {name: {size: [] for size in sizes} for name in makers}
    if rank == 0:
        for size in sizes:
            for _ in range(num_repeats):
                for name, make in makers.items():
                    server = rpc.RRef(make(torch.zeros(size), world_size - 1, 0.01))
                    calls = [
                        rpc.rpc_async(f"rank{peer}", push_many, args=(server, peer - 1, size, num_pushes))
                        for peer in range(1, world_size)
                    ]
                    found[name][size].append(max(call.wait() for call in calls))
    rpc.shutdown()
    return found


def run(quick: bool = False) -> tuple[str, list[Bar], dict[str, Any]]:
    """Return the table as text, the bars, and the figures as data."""
    makers = {PEER: BatchUpdatingServer, SYNC: solution(SYNC), ASYNC: solution(ASYNC)}
    workers, pushes, repeats = 2, 30 if quick else 100, 3 if quick else 7
    world = labkit.local(workers + 1, device="cpu")
    found = labkit.run(
        take_turns, makers, SIZES, pushes, repeats, on=world, init=False, echo=False, timeout=300
    ).results[0]  # fmt: skip
    rates = {
        name: {size: workers * pushes / median(seconds) for size, seconds in by_size.items()}
        for name, by_size in found.items()
    }
    rows = [
        [
            f"{size:,} numbers",
            *(f"{rates[name][size]:,.0f}" for name in makers),
            f"{rates[SYNC][size] / rates[PEER][size]:.2f}",
        ]
        for size in SIZES
    ]
    bars = [
        Bar(
            f"SyncServer, {size:,} numbers, at least 0.8 x the tutorial's pushes per second",
            rates[SYNC][size] / rates[PEER][size],
            0.8,
            at_least=True,
        )
        for size in SIZES
    ]
    head = ["pushes per second, 2 workers", *makers, f"{SYNC} / tutorial's"]
    lines = ["Servers of lesson 06's solution beside PyTorch's own way, median over repeats of the slowest worker"]
    lines.append(
        "  (The solution copies the weights before it answers; the tutorial sends the tensor that it will change.)"
    )
    return "\n".join([*lines, table(head, rows)]), bars, {"pushes_per_second": rates}
