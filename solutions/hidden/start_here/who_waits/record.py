"""Records the runs of `who_waits`: eight GPUs train, one of them is late in every step.

Run `python record.py` in this folder to write both recordings anew; they come out the same on every machine.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import labkit

HERE = Path(__file__).parent
LABKITS = Path(__file__).parents[4] / "labkit" / "exercises" / "start_here" / "who_waits"
STEPS, WIDTH, GRADIENT = 4, 4096, 24_000_000


def train(late: int, loads_late: bool) -> None:
    """Train for some steps; one rank gets its data late, or its share of the work is larger."""
    weights = torch.ones(WIDTH, WIDTH, device="meta")  # shapes are enough: nobody reads the numbers
    gradient = torch.ones(GRADIENT, device="meta")
    is_late = dist.get_rank() == late
    for _ in range(STEPS):
        with labkit.span("load batch"):
            time.sleep(0.0107 if is_late and loads_late else 0.0006)
        with labkit.span("forward and backward"):
            for _ in range(5 if is_late and not loads_late else 2):
                weights = weights @ weights
        dist.all_reduce(gradient)


def record(late: int, loads_late: bool) -> labkit.Timeline:
    """Return the timeline of a run."""
    return labkit.run(train, late, loads_late, on=labkit.virtual(8), echo=False).timeline


def drawn(draw: random.Random) -> tuple[labkit.Timeline, dict[str, Any]]:
    """Return a student's own run, and what its key says."""
    late, loads_late = draw.randrange(8), draw.random() < 0.5
    cause = "loads its data late" if loads_late else "computes for longer"
    return record(late, loads_late), {"answers": {"rank": late, "waits_in": "all_reduce", "cause": cause}}


if __name__ == "__main__":
    record(5, True).save(LABKITS / "recording.json")
    record(2, False).save(HERE / "recording.json")
