"""Sharded training: the solution's ShardedModule beside torch's fully_shard, on virtual GPUs and on real processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import labkit
from labkit.lessons import source
from labkit.models import GPT, train_on_ranks
from labkit.timeline.memory import peak_memory_bytes
from labkit.timeline.metrics import collective_payload_bytes, lane_times
from tests.benchmarks.table import Bar, ratio, table

SOLUTION = Path(__file__).parents[2] / "solutions" / "13_sharded_training.py"
RANKS = 8


def solution() -> dict[str, Any]:
    """Return what the given and exercise cells of lesson 13's solution define."""
    names: dict[str, Any] = {"__name__": "solution_13"}
    for cell in source.load(SOLUTION).cells:
        if cell.role in ("given", "exercise"):
            exec(compile(cell.source, f"{SOLUTION.name}:{cell.id}", "exec", dont_inherit=True), names)
    return names


def step(kind: str, names: dict[str, Any], num_steps: int) -> list[float]:
    """Train a GPT, sharded in one way; return the loss of each step."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model: Any = GPT(num_layers=6, width=192)
    finish: Callable[[], object] | None = None
    adamw = torch.optim.AdamW
    if kind in ("DDP", "ZeRO-1 behind DDP", "torch's ZeroRedundancyOptimizer"):
        model = nn.parallel.DistributedDataParallel(model)
    if kind == "torch's fully_shard":
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for block in (*model.blocks, model):
            fully_shard(block, mesh=mesh)
    if kind == "ZeRO-3":
        model = names["ShardedModule"](model, model.blocks)
        finish = model.finish_gradient_synchronization
    if kind == "torch's ZeroRedundancyOptimizer":
        optimizer: Any = ZeroRedundancyOptimizer(model.parameters(), adamw, lr=1e-3)
    elif kind in ("ZeRO-1 behind DDP", "ZeRO-2"):
        name = "ScatteringOptimizer" if kind == "ZeRO-2" else "ShardedOptimizer"
        optimizer = names[name](model.parameters(), adamw, lr=1e-3)
    else:
        optimizer = adamw(model.parameters(), lr=1e-3)
    return train_on_ranks(model, optimizer, num_steps, finish)


KINDS = (
    "DDP",
    "torch's ZeroRedundancyOptimizer",
    "ZeRO-1 behind DDP",
    "ZeRO-2",
    "torch's fully_shard",
    "ZeRO-3",
)


def run(quick: bool = False) -> tuple[str, list[Bar], dict[str, Any]]:
    """Return the tables as text, the bars, and the figures as data."""
    names = solution()
    rows, figures = [], {}
    for kind in KINDS:
        world = labkit.virtual(RANKS, gpu="h100", link="pcie5")
        timeline = labkit.run(step, kind, names, 2, on=world, echo=False).timeline
        assert timeline is not None
        times = lane_times(timeline)
        found = {
            "time_ms": timeline.makespan_ns / 1e6,
            "exposed_ms": float((times.either_ns - times.compute_ns).max()) / 1e6,
            "peak_mb": peak_memory_bytes(timeline) / 1e6,
            "payload_mb": float(collective_payload_bytes(timeline).max()) / 1e6,
        }
        figures[kind] = found
        rows.append([kind, *(f"{value:.2f}" for value in found.values())])
    text = [f"two steps of a GPT on {RANKS} virtual H100s, PCIe 5"]
    text.append(table(["", "ms", "exposed ms", "peak MB", "payload MB"], rows))
    ours, theirs = figures["ZeRO-3"], figures["torch's fully_shard"]
    bars = [
        Bar("exposed virtual time, at most fully_shard's", ratio(ours["exposed_ms"], theirs["exposed_ms"]), 1.0),
        Bar("memory at the peak, at most fully_shard's", ratio(ours["peak_mb"], theirs["peak_mb"]), 1.0),
        Bar("bytes, at most fully_shard's", ratio(ours["payload_mb"], theirs["payload_mb"]), 1.0),
    ]
    num_steps = 4 if quick else 20
    real, rows = {}, []
    for kind in KINDS:
        done = labkit.run(step, kind, names, num_steps, on=labkit.local(2, device="cpu"), echo=False)
        real[kind] = done.results[0]
        rows.append([kind, f"{real[kind][-1]:.5f}"])
    text += [f"loss after {num_steps} steps on two real processes", table(["", "loss"], rows)]
    apart = max(abs(losses[-1] - real["DDP"][-1]) for losses in real.values())
    bars.append(Bar("largest difference between the losses of all six", apart, 1e-3))
    return "\n".join(text), bars, {"virtual": figures, "real": real}
