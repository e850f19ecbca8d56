"""Records the runs of `waiting_order`: a pipeline of four virtual H100s, one of which goes backward too early.

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
LABKITS = Path(__file__).parents[4] / "labkit" / "exercises" / "schedules" / "waiting_order"
WIDTH, DEPTH, SAMPLES, MICROBATCHES = 8192, 4, 2048, 8
_KEPT = ("call", "wait", "clock")


def record(ahead: tuple[int, int, int, int]) -> labkit.Timeline:
    """Return the run in which stage s begins with ahead[s] forwards, without what a learner does not look at."""
    timeline = labkit.run(step, ahead, on=labkit.virtual(4), echo=False).timeline
    timeline.tables = {name: table for name, table in timeline.tables.items() if name in _KEPT}
    return timeline


def step(ahead: tuple[int, int, int, int]) -> None:
    """Play one stage: 1F1B but for the number of forwards it begins with."""
    stage, last = dist.get_rank(), dist.get_world_size() - 1
    module = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False, device="meta") for _ in range(DEPTH)))
    entered: dict[int, Tensor] = {}
    left: dict[int, Tensor] = {}
    sent: list[dist.Work | None] = []

    def room() -> Tensor:
        return torch.empty(SAMPLES, WIDTH, device="meta", requires_grad=True)

    def forward(m: int) -> None:
        entered[m] = room()
        if stage > 0:
            dist.recv(entered[m].detach(), src=stage - 1)
        with labkit.span(f"F{m}"):
            left[m] = module(entered[m])
        if stage < last:
            sent.append(dist.isend(left[m].detach(), dst=stage + 1))

    def backward(m: int) -> None:
        gradient = torch.empty_like(left[m])
        if stage < last:
            dist.recv(gradient, src=stage + 1)
        with labkit.span(f"B{m}"):
            torch.autograd.backward(left.pop(m), gradient)
        if stage > 0:
            grad = entered.pop(m).grad
            assert grad is not None
            sent.append(dist.isend(grad, dst=stage - 1))

    for m in range(ahead[stage]):
        forward(m)
    for m in range(MICROBATCHES):
        backward(m)
        if m + ahead[stage] < MICROBATCHES:
            forward(m + ahead[stage])
    for work in sent:
        assert work is not None
        work.wait()


def drawn(draw: random.Random) -> tuple[labkit.Timeline, dict[str, Any]]:
    """Return a student's own run, and what its key says: one stage begins with a forward less than in 1F1B."""
    stage = draw.randrange(3)
    ahead = [4, 3, 2, 1]
    ahead[stage] -= 1
    answers = {"stage": stage, "microbatch": ahead[stage], "cause": "too few forwards first"}
    return record((ahead[0], ahead[1], ahead[2], ahead[3])), {"answers": answers}


if __name__ == "__main__":
    record((4, 2, 2, 1)).save(LABKITS / "recording.json")
    record((4, 3, 1, 1)).save(HERE / "recording.json")
