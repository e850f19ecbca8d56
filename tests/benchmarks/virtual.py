"""What simulating costs: a ring at several numbers of ranks, and training beside the same numerics in one process."""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed as dist

from labkit.simulator.cluster import describe
from labkit.simulator.run import simulate
from tests.benchmarks.table import Bar, table

NUM_RANKS = (8, 32, 64, 128, 256)
NUM_STEPS = 10


def _ring() -> None:
    """Send and receive as a ring all_reduce does, with an addition in its first half."""
    rank, size = dist.get_rank(), dist.get_world_size()
    chunks, got = list(torch.ones(size, 16)), torch.empty(16)
    for step in range(2 * (size - 1)):
        ops = [
            dist.P2POp(dist.isend, chunks[(rank - step) % size], (rank + 1) % size),
            dist.P2POp(dist.irecv, got, (rank - 1) % size),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        if step < size - 1:
            chunks[(rank - step - 1) % size].add_(got)


def _train() -> float:
    """Train a small model without any communication; return its loss."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.ones(128, 256)
    for _ in range(NUM_STEPS):
        optimizer.zero_grad()
        loss = model(inputs).pow(2).mean()
        loss.backward()
        optimizer.step()
    return float(loss.detach())


def _plain_seconds(num_ranks: int) -> float:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        begin = time.perf_counter()
        for _ in range(num_ranks):
            _train()
        return time.perf_counter() - begin
    finally:
        torch.set_num_threads(before)


def run(quick: bool) -> tuple[str, list[Bar], dict[str, Any]]:
    """Return a table, the bars and the figures."""
    simulate(_ring, (), describe(2), echo=False)  # what is imported on first use is not counted
    rings: dict[int, dict[str, float]] = {}
    rows = []
    for num_ranks in NUM_RANKS[:3] if quick else NUM_RANKS:
        begin = time.perf_counter()
        outcome = simulate(_ring, (), describe(num_ranks), echo=False)
        seconds = time.perf_counter() - begin
        events = len(outcome.timeline)
        rings[num_ranks] = {"seconds": seconds, "spans": events, "switches": outcome.switches}
        rows.append([f"{num_ranks}", f"{seconds:.2f}", f"{events}", f"{events / seconds:.0f}", f"{outcome.switches}"])
    text = "A ring all-reduce of messages in virtual time\n" + table(
        ["ranks", "seconds", "spans", "spans per second", "switches of rank"], rows
    )
    simulated, plain = [], []
    for _ in range(2 if quick else 5):
        begin = time.perf_counter()
        simulate(_train, (), describe(4), echo=False)
        simulated.append(time.perf_counter() - begin)
        plain.append(_plain_seconds(4))
    text += f"\n  {NUM_STEPS} training steps on 4 ranks: {min(simulated):.3f} s, one after the other without: "
    text += f"{min(plain):.3f} s"
    bars = [Bar("simulated training takes at most 3 times the same numerics", min(simulated) / min(plain), 3.0)]
    return text, bars, {"rings": rings, "training": {"simulated": simulated, "plain": plain}}
