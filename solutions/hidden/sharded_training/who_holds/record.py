"""Records the runs of `who_holds`: three steps of sharded training, in which one rank keeps what it should let go.

Run it from the repository to write both recordings anew; they come out the same on every machine.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch
from torch import nn

import labkit
from labkit.lessons.source import load

HERE = Path(__file__).parent
SOLUTION = HERE.parents[2] / "13_sharded_training.py"
LABKITS = HERE.parents[3] / "labkit" / "exercises" / "sharded_training" / "who_holds"
STEPS, LAYERS, WIDTH, ROWS, RANKS = 3, 4, 1024, 2048, 4
_KEPT = ("memory", "memory_peak", "call", "wait", "clock")


def train(names: dict[str, Any], leaky: int, gradients: bool, rows: int) -> None:
    """Train a stack of layers; one rank keeps the gradients of a layer for a plot, or what a layer has returned."""
    rank = torch.distributed.get_rank()
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, device="meta") for _ in range(LAYERS)))
    plotted: list[Any] = []
    if rank == leaky and gradients:
        model[1].weight.register_post_accumulate_grad_hook(lambda parameter: plotted.append(parameter.grad))
    elif rank == leaky:
        model[2].register_forward_hook(lambda layer, given, output: plotted.append(output.detach()))
    sharded = names["ShardedModule"](model)
    optimizer = torch.optim.AdamW(sharded.parameters(), foreach=False)
    for _ in range(STEPS):
        optimizer.zero_grad()
        outputs = sharded(torch.empty(rows, WIDTH, device="meta").requires_grad_())
        torch.autograd.backward(outputs.sum())
        sharded.finish_gradient_synchronization()
        optimizer.step()
        del outputs
    optimizer.zero_grad()
    torch.distributed.barrier()


def record(leaky: int, gradients: bool, rows: int = ROWS) -> labkit.Timeline:
    """Return the timeline of a run, without what a learner does not look at."""
    names: dict[str, Any] = {"__name__": "solution_13"}
    for cell in load(SOLUTION).cells:
        if cell.role in ("given", "exercise"):
            exec(compile(cell.source, cell.id, "exec", dont_inherit=True), names)
    world = labkit.virtual(RANKS, gpu="a100", link="pcie4", join_operators=True)
    timeline = labkit.run(train, names, leaky, gradients, rows, on=world, echo=False).timeline
    timeline.tables = {name: table for name, table in timeline.tables.items() if name in _KEPT}
    return timeline


def extra_mb(timeline: labkit.Timeline, leaky: int) -> float:
    """Return how much higher a rank's peak is than that of rank 0."""
    peaks = timeline.tables["memory_peak"]
    of_rank = dict(zip(peaks["rank"].tolist(), peaks["bytes"].tolist(), strict=True))
    return round((of_rank[leaky] - of_rank[0]) / 1e6, 1)


def drawn(draw: random.Random) -> tuple[labkit.Timeline, dict[str, Any]]:
    """Return a student's own run, and what its key says."""
    leaky, gradients, rows = draw.randint(1, RANKS - 1), draw.random() < 0.5, 512 * draw.randint(3, 8)
    timeline = record(leaky, gradients, rows)
    cause = "gradients" if gradients else "activations"
    answers = {"rank": leaky, "extra_mb": extra_mb(timeline, leaky), "cause": cause}
    return timeline, {"answers": answers, "within": {"extra_mb": 0.06}}


if __name__ == "__main__":
    record(2, True).save(LABKITS / "recording.json")
    record(1, False).save(HERE / "recording.json")
