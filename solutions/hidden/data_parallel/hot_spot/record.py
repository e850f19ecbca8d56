"""Records the runs of `hot_spot`: a step of data parallelism from one device, on eight virtual A100s.

Run it from the repository to write both recordings anew; they come out the same on every machine.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import labkit

HERE = Path(__file__).parent
LABKITS = Path(__file__).parents[4] / "labkit" / "exercises" / "data_parallel" / "hot_spot"
WIDTH, DEPTH, BATCH, DEVICES = 2048, 8, 8192, 8
_KEPT = ("call", "wait", "clock")


def record(root: int = 0, batch: int = BATCH) -> labkit.Timeline:
    """Return the run in which this device holds the model, without what a learner does not look at: memory, source lines, counted work."""
    timeline = labkit.run(step, root, batch, on=labkit.virtual(DEVICES, gpu="a100", link="pcie4"), echo=False).timeline
    timeline = timeline.select(timeline.name != "uniform_")  # making the model is not looked at
    timeline.tables = {name: table for name, table in timeline.tables.items() if name in _KEPT}
    return timeline


def step(root: int, batch: int) -> None:
    """Play one device's part."""
    rows = batch // dist.get_world_size()
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, device="meta") for _ in range(DEPTH)))
    weights = sum(parameter.numel() for parameter in model.parameters())
    _move(root, "inputs", rows * WIDTH, out=True)
    _move(root, "model", weights, out=True)
    with labkit.span("forward"):
        outputs = model(torch.empty(rows, WIDTH, device="meta"))
    _move(root, "outputs", rows * WIDTH, out=False)
    _move(root, "output gradients", rows * WIDTH, out=True)
    with labkit.span("backward"):
        torch.autograd.backward(outputs.sum())
    _move(root, "model gradients", weights, out=False)


def _move(root: int, what: str, numel: int, *, out: bool) -> None:
    rank = dist.get_rank()
    tensor = torch.empty(numel, device="meta")
    with labkit.span(what, "host"):
        for peer in (each for each in range(dist.get_world_size()) if each != root) if rank == root else [root]:
            if (rank == root) is out:
                dist.send(tensor, dst=peer)
            else:
                dist.recv(tensor, src=peer)


def starts_ms(timeline: labkit.Timeline) -> float:
    """Return when the last forward pass begins."""
    return round(max(span.start_ns for span in timeline.spans().rows() if span.name == "forward") / 1e6, 1)


def drawn(draw: random.Random) -> tuple[labkit.Timeline, dict[str, Any]]:
    """Return a student's own run, and what its key says."""
    root, batch = draw.randrange(DEVICES), 1024 * draw.randint(4, 16)
    timeline = record(root, batch)
    answers = {"rank": root, "starts_ms": starts_ms(timeline), "cause": "one port"}
    return timeline, {"answers": answers, "within": {"starts_ms": 0.06}}


if __name__ == "__main__":
    record().save(LABKITS / "recording.json")
    record(6).save(HERE / "recording.json")
