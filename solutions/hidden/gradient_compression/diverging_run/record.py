"""Records the runs of `diverging_run`: a small network on four virtual ranks, two buckets, top 10 % with a memory.

From some step on one rank's memory of one bucket goes wrong. The table "norms" holds what every rank wrote down. Run it
from the repository to write both recordings anew.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

import labkit

HERE = Path(__file__).parent
LABKITS = Path(__file__).parents[4] / "labkit" / "exercises" / "gradient_compression" / "diverging_run"
RANKS, STEPS, WIDTH, BATCH, RATE, MOMENTUM, KEPT = 4, 60, 32, 32, 0.03, 0.9, 100
STAYS, SIGNS_LOST = "what was sent stays in the residual", "signs are lost in what is sent"
COLUMNS = ("gradient", "compressed", "sent", "residual")


def record(rank: int, bucket: int, since: int, cause: str) -> labkit.Timeline:
    """Return the run, with the table of what its ranks wrote down."""
    outcome = labkit.run(train, rank, bucket, since, cause, on=labkit.virtual(RANKS), echo=False)
    timeline = outcome.timeline
    assert timeline is not None
    timeline = timeline.select(timeline.name == "step")
    rows = [row for of_rank in outcome.results for row in of_rank]
    timeline.tables = {"norms": {name: np.array([row[name] for row in rows]) for name in rows[0]}}
    return timeline


def train(wrong: int, place: int, since: int, cause: str) -> list[dict[str, Any]]:
    """Play one rank: two layers, a bucket each; return the norms of each step and bucket."""
    rank = dist.get_rank()
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    teacher, weights = ([draw(WIDTH, WIDTH) / WIDTH**0.5 for _ in range(2)] for _ in range(2))
    residuals, speeds = ([torch.zeros(WIDTH, WIDTH) for _ in weights] for _ in range(2))
    rows = []
    generator.manual_seed(rank + 1)
    for step in range(STEPS):
        with labkit.span("step"):
            x = draw(BATCH, WIDTH)
            given = [each.clone().requires_grad_() for each in weights]
            loss = (_made(given, x) - _made(teacher, x)).square().mean() * WIDTH / 2
            for bucket, gradient in enumerate(torch.autograd.grad(loss, given)):
                broken = (rank, bucket) == (wrong, place) and step >= since
                compressed = gradient + residuals[bucket]
                largest = compressed.abs().flatten().topk(KEPT).indices
                sent = torch.zeros(WIDTH * WIDTH)
                sent[largest] = compressed.flatten()[largest]
                sent = sent.view(WIDTH, WIDTH)
                if broken and cause == SIGNS_LOST:
                    sent = sent.abs()
                residuals[bucket] = compressed if broken and cause == STAYS else compressed - sent
                norms = (gradient, compressed, sent, residuals[bucket])
                about = {"step": step, "rank": rank, "bucket": bucket, "loss": round(loss.item(), 3)}
                rows.append(
                    about | {name: round(each.norm().item(), 3) for name, each in zip(COLUMNS, norms, strict=True)}
                )
                mean = sent.clone()
                dist.all_reduce(mean)
                speeds[bucket] = MOMENTUM * speeds[bucket] + mean / RANKS
                weights[bucket] = weights[bucket] - RATE * speeds[bucket]
    return rows


def _made(weights: list[Tensor], x: Tensor) -> Tensor:
    return (x @ weights[0]).tanh() @ weights[1]


def drawn(draw: random.Random) -> tuple[labkit.Timeline, dict[str, Any]]:
    """Return a student's own run, and what its key says."""
    rank, bucket, since = draw.randrange(RANKS), draw.randrange(2), draw.randint(11, 26)
    cause = draw.choice([STAYS, SIGNS_LOST])
    answers = {"rank": rank, "bucket": bucket, "since": since, "cause": cause}
    return record(rank, bucket, since, cause), {"answers": answers}


if __name__ == "__main__":
    record(2, 1, 14, STAYS).save(LABKITS / "recording.json")
    record(1, 0, 17, SIGNS_LOST).save(HERE / "recording.json")
