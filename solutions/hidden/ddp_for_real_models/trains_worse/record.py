"""Records the runs of `trains_worse`: three steps on four virtual A100s, in which one rank's model drifts away unseen.

Run it from the repository to write both recordings anew; they come out the same on every machine.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import labkit

HERE = Path(__file__).parent
LABKITS = Path(__file__).parents[4] / "labkit" / "exercises" / "ddp_for_real_models" / "trains_worse"
WIDTH, DEPTH, BATCH, RANKS, STEPS = 2048, 6, 2048, 4, 3
_KEPT = ("call", "wait", "clock")


def record(wrong: int, cause: str) -> labkit.Timeline:
    """Return the run, without what a learner does not look at: memory, source lines, counted work."""
    world = labkit.virtual(RANKS, gpu="a100", link="pcie4")
    timeline = labkit.run(train, wrong, cause, on=world, echo=False).timeline
    timeline = timeline.select(timeline.name != "uniform_")  # making the model is not looked at
    timeline.tables = {name: table for name, table in timeline.tables.items() if name in _KEPT}
    return timeline


def train(wrong: int, cause: str) -> None:
    """Play one rank: a layer is a bucket; then gradients are clipped, and the optimizer takes its step."""
    mistake = cause if dist.get_rank() == wrong else ""
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False, device="meta") for _ in range(DEPTH)))
    works: list[dist.Work] = []

    def send(weight: Tensor) -> None:
        work = dist.all_reduce(weight.grad, async_op=True)
        assert work is not None
        works.append(work)

    for weight in model.parameters():
        weight.register_post_accumulate_grad_hook(send)
    for _ in range(STEPS):
        model.zero_grad()
        with labkit.span("forward"):
            loss = model(torch.empty(BATCH, WIDTH, device="meta")).sum()
        with labkit.span("backward"):
            torch.autograd.backward(loss)
        if mistake == "clips before the mean":
            _clip(model)
        last = works.pop() if mistake == "steps before the last bucket" else None
        for work in works:
            work.wait()
        works.clear()
        if mistake != "clips before the mean":
            _clip(model)
        with labkit.span("optimizer"), torch.no_grad():
            for weight in model.parameters():
                weight.add_(weight.grad, alpha=-0.1)
        if last is not None:
            last.wait()


def _clip(model: nn.Module) -> None:
    with labkit.span("clip"):
        squares = sum(weight.grad.square().sum() for weight in model.parameters())
        for weight in model.parameters():
            weight.grad.mul_(squares)


def gap_ms(timeline: labkit.Timeline, wrong: int) -> float:
    """Return how long before the end of its last all-reduce a rank's first optimizer step begins; 0 if it waits."""
    spans = list(timeline.spans(rank=wrong).rows())
    begins = next(span.start_ns for span in spans if span.name == "optimizer")
    ends = max(span.end_ns for span in spans if span.name == "all_reduce" and span.start_ns < begins)
    return max(0.0, round((ends - begins) / 1e6, 2))


def drawn(draw: random.Random) -> tuple[labkit.Timeline, dict[str, Any]]:
    """Return a student's own run, and what its key says."""
    wrong, cause = draw.randrange(RANKS), draw.choice(["steps before the last bucket", "clips before the mean"])
    timeline = record(wrong, cause)
    return timeline, {
        "answers": {"rank": wrong, "gap_ms": gap_ms(timeline, wrong), "cause": cause},
        "within": {"gap_ms": 0.1},
    }


if __name__ == "__main__":
    record(2, "steps before the last bucket").save(LABKITS / "recording.json")
    record(1, "clips before the mean").save(HERE / "recording.json")
