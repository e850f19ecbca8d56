"""Records the run of `hot_spot`: a step of data parallelism from one device, on eight virtual A100s.

Run it from the repository to write the recording anew; it comes out the same on every machine.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

import labkit

LABKITS = Path(__file__).parents[4] / "labkit" / "exercises" / "data_parallel" / "hot_spot"
WIDTH, DEPTH, BATCH, DEVICES = 2048, 8, 8192, 8
_KEPT = ("call", "wait", "clock")


def record() -> labkit.Timeline:
    """Return the run, without what a learner does not look at: memory, source lines, counted work."""
    timeline = labkit.run(step, on=labkit.virtual(DEVICES, gpu="a100", link="pcie4"), echo=False).timeline
    timeline = timeline.select(timeline.name != "uniform_")  # making the model is not looked at
    timeline.tables = {name: table for name, table in timeline.tables.items() if name in _KEPT}
    return timeline


def step() -> None:
    """Play one device's part."""
    rows = BATCH // dist.get_world_size()
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, device="meta") for _ in range(DEPTH)))
    weights = sum(parameter.numel() for parameter in model.parameters())
    _move("inputs", rows * WIDTH, out=True)
    _move("model", weights, out=True)
    with labkit.span("forward"):
        outputs = model(torch.empty(rows, WIDTH, device="meta"))
    _move("outputs", rows * WIDTH, out=False)
    _move("output gradients", rows * WIDTH, out=True)
    with labkit.span("backward"):
        torch.autograd.backward(outputs.sum())
    _move("model gradients", weights, out=False)


def _move(what: str, numel: int, *, out: bool) -> None:
    rank = dist.get_rank()
    tensor = torch.empty(numel, device="meta")
    with labkit.span(what, "host"):
        for peer in range(1, dist.get_world_size()) if rank == 0 else [0]:
            if (rank == 0) is out:
                dist.send(tensor, dst=peer)
            else:
                dist.recv(tensor, src=peer)


if __name__ == "__main__":
    record().save(LABKITS / "recording.json")
