"""Records the runs of `late_rank`: two steps of DDP on eight virtual A100s, one of them late in every step.

Run it from the repository to write both recordings anew; they come out the same on every machine.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import labkit

HERE = Path(__file__).parent
LABKITS = Path(__file__).parents[4] / "labkit" / "exercises" / "ddp" / "late_rank"
WIDTH, DEPTH, BATCH, RANKS, STEPS = 2048, 8, 2048, 8, 2
_KEPT = ("call", "wait", "clock")


def record(late: int, cause: str, factor: float = 1.3) -> labkit.Timeline:
    """Return the run, without what a learner does not look at: memory, source lines, counted work."""
    slow = {late: factor} if cause == "slow GPU" else None
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


def late_ms(timeline: labkit.Timeline, late: int) -> float:
    """Return how much later a rank's first backward ends than rank 0's, or than rank 1's if rank 0 is late."""

    def ends(rank: int) -> float:
        return next(span.end_ns for span in timeline.spans(rank=rank).rows() if span.name == "backward")

    return round((ends(late) - ends(1 if late == 0 else 0)) / 1e6, 1)


def drawn(draw: random.Random) -> tuple[labkit.Timeline, dict[str, Any]]:
    """Return a student's own run, and what its key says."""
    late, cause = draw.randrange(RANKS), draw.choice(["late data", "slow GPU", "waits in a hook"])
    timeline = record(late, cause, 1.2 + draw.randrange(5) / 10)
    answers = {"rank": late, "late_ms": late_ms(timeline, late), "cause": cause}
    return timeline, {"answers": answers, "within": {"late_ms": 0.06}}


if __name__ == "__main__":
    record(5, "waits in a hook").save(LABKITS / "recording.json")
    record(2, "slow GPU").save(HERE / "recording.json")
