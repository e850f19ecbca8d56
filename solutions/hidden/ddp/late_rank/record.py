"""Records the runs of `late_rank`: two steps of DDP on eight virtual A100s, one of them late in every step.

Run it from the repository to write both recordings anew; they come out the same on every machine.
"""

from __future__ import annotations

import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

import labkit

HERE = Path(__file__).parent
LABKITS = Path(__file__).parents[4] / "labkit" / "exercises" / "ddp" / "late_rank"
WIDTH, DEPTH, BATCH, RANKS, STEPS = 2048, 8, 2048, 8, 2
_KEPT = ("call", "wait", "clock")


def record(late: int, cause: str) -> labkit.Timeline:
    """Return the run, without what a learner does not look at: memory, source lines, counted work."""
    slow = {late: 1.3} if cause == "slow GPU" else None
    world = labkit.virtual(RANKS, gpu="a100", link="pcie4", slow=slow)
    timeline = labkit.run(train, late, cause, on=world, echo=False).timeline
    timeline = timeline.select(timeline.name != "uniform_")  # making the model is not looked at
    timeline.tables = {name: table for name, table in timeline.tables.items() if name in _KEPT}
    return timeline


def train(late: int, cause: str) -> None:
    """Play one rank: a layer is a bucket, sent by a hook as soon as its gradient is there."""
    is_late = dist.get_rank() == late
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False, device="meta") for _ in range(DEPTH)))
    works: list[dist.Work] = []

    def send(weight: Tensor) -> None:
        work = dist.all_reduce(weight.grad, async_op=True)
        assert work is not None
        if is_late and cause == "waits in a hook" and len(works) % 2 == 0:
            work.wait()
        works.append(work)

    for weight in model.parameters():
        weight.register_post_accumulate_grad_hook(send)
    for _ in range(STEPS):
        model.zero_grad()
        with labkit.span("load batch", "host"):
            time.sleep(0.0065 if is_late and cause == "late data" else 0.0005)
        with labkit.span("forward"):
            loss = model(torch.empty(BATCH, WIDTH, device="meta")).sum()
        with labkit.span("backward"):
            torch.autograd.backward(loss)
        for work in works:
            work.wait()
        works.clear()


if __name__ == "__main__":
    record(5, "waits in a hook").save(LABKITS / "recording.json")
    record(2, "slow GPU").save(HERE / "recording.json")
