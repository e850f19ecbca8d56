"""What watching costs: a small GPT on 8 virtual ranks as it runs by itself, and as an audit runs it, in turn."""

from __future__ import annotations

import contextlib
import io
import time
from statistics import median
from typing import Any

from torch.nn.parallel import DistributedDataParallel

import labkit
from labkit.models import GPT, optimizer_for, train_on_ranks
from tests.benchmarks.table import Bar, table

RANKS, STEPS, ROUNDS = 8, 4, 3


def gpt() -> None:
    """Train the course's GPT for a few steps under DDP."""
    model = DistributedDataParallel(GPT())
    train_on_ranks(model, optimizer_for(model), STEPS)


def run(quick: bool = False) -> tuple[str, list[Bar], dict[str, Any]]:
    """Return the table as text, the bars, and the figures as data."""
    world = labkit.virtual(RANKS)
    ways = {
        "by itself": lambda: labkit.run(gpt, on=world, echo=False),
        "watched": lambda: labkit.audit(gpt, on=world),
        "against one process": lambda: labkit.audit(gpt, on=world, against=1),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    ways["by itself"]()  # the first run imports
    for _ in range(1 if quick else ROUNDS):
        for name, way in ways.items():
            begin = time.process_time()
            with contextlib.redirect_stderr(io.StringIO()):
                way()
            seconds[name].append(time.process_time() - begin)
    typical = {name: median(values) for name, values in seconds.items()}
    rows = [[name, f"{value:.2f} s", f"{value / typical['by itself']:.2f}"] for name, value in typical.items()]
    text = f"{STEPS} steps of the course's GPT under DDP on {RANKS} virtual ranks, processor time, median"
    bars = [
        Bar("an audit, over the program's own run", typical["watched"] / typical["by itself"], 3),
        Bar("an audit of 4 steps on 8 ranks, s of processor time", typical["watched"], 60),
    ]
    return "\n".join([text, table(["", "takes", "ratio"], rows)]), bars, {"seconds": seconds}
