"""Records the runs of `starved_step`: four GPUs train, and wait for data about a third of the time.

Run `python record.py` in this folder to write both recordings anew; they come out the same on every machine.
"""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import labkit

HERE = Path(__file__).parent
LABKITS = Path(__file__).parents[4] / "labkit" / "exercises" / "faster_steps" / "starved_step"
STEPS, WIDTH, GRADIENT = 19, 6144, 12_000_000
_KEPT = ("call", "wait", "clock")


def one_in_six(step: int) -> float:
    """Return how long a batch is loaded when each sixth begins a new file."""
    return 0.0445 if step % 6 == 5 else 0.0002


def all_alike(step: int) -> float:
    """Return how long a batch is loaded when every one is decoded on one slow core."""
    return 0.0133


def train(loads: Callable[[int], float]) -> None:
    """Train for some steps on what a thread loads ahead, one batch in stock."""
    ready: queue.Queue[int] = queue.Queue(maxsize=1)

    def load() -> None:
        for step in range(STEPS):
            with labkit.span("load a batch"):
                time.sleep(loads(step))
            ready.put(step)

    thread = threading.Thread(target=load)
    thread.start()
    weights = torch.ones(WIDTH, WIDTH, device="meta")
    gradient = torch.ones(GRADIENT, device="meta")
    for _ in range(STEPS):
        with labkit.span("next batch"):
            ready.get()
        with labkit.span("forward and backward"):
            weights = weights @ weights
        dist.all_reduce(gradient)
    thread.join()


def record(loads: Callable[[int], float]) -> labkit.Timeline:
    """Return the timeline of a run, without what a learner does not look at."""
    timeline = labkit.run(train, loads, on=labkit.virtual(4), echo=False).timeline
    timeline = timeline.select(timeline.name != "ones")  # making the model is not looked at
    timeline.tables = {name: table for name, table in timeline.tables.items() if name in _KEPT}
    return timeline


def share(timeline: labkit.Timeline) -> float:
    """Return the share of the whole run that rank 0 spends waiting for a batch."""
    waits = [span.end_ns - span.start_ns for span in timeline.spans(rank=0).rows() if span.name == "next batch"]
    return round(sum(waits) / timeline.makespan_ns, 2)


def drawn(draw: random.Random) -> tuple[labkit.Timeline, dict[str, Any]]:
    """Return a student's own run, and what its key says."""
    every, more_ms = draw.choice([1, 3, 4, 5, 6, 7, 8, 9]), draw.randint(0, 8) / 4
    if every == 1:
        timeline = record(lambda step: (12.8 + more_ms / 2) / 1000)
    else:
        slow = (17.8 + 4.45 * every + more_ms) / 1000  # two steps are in stock, half a step is lost for each
        timeline = record(lambda step: slow if step % every == every - 1 else 0.0002)
    each, few = "each batch loads slower than it trains", "few batches load slowly, and too few are loaded ahead"
    answers = {"waits_in": "next batch", "share": share(timeline), "every": every, "cause": each if every == 1 else few}
    return timeline, {"answers": answers, "within": {"share": 0.1}}


if __name__ == "__main__":
    record(one_in_six).save(LABKITS / "recording.json")
    record(all_alike).save(HERE / "recording.json")
