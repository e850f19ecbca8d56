"""Records the runs of `lost_time`: a rank stops in the middle of a step, and nobody says so for half an hour.

Run it from the repository to write both recordings anew; they come out the same on every machine.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import labkit
from labkit.failures import Hang

HERE = Path(__file__).parent
LABKITS = Path(__file__).parents[4] / "labkit" / "exercises" / "when_machines_fail" / "lost_time"
STEPS, SAVE_EVERY, LOAD_S, COMPUTE_S, SAVE_S = 50, 20, 6.0, 30.0, 12.0
WHOLE_S = {"load": LOAD_S, "compute": COMPUTE_S, "save": SAVE_S}
OF_OURS = (2, 37, "loads")
OF_CLASS = (1, 38, "computes")


def train() -> None:
    """Train from the last save on; steps and saves are marked."""
    saved = Path("step")
    begin = int(saved.read_text()) if saved.exists() else 0
    for step in range(begin, STEPS):
        with labkit.span(f"load {step}"):
            _work(LOAD_S)
        with labkit.span(f"compute {step}"):
            _work(COMPUTE_S)
        dist.all_reduce(torch.ones(4))
        if (step + 1) % SAVE_EVERY == 0:
            with labkit.span(f"save {step}"):
                time.sleep(SAVE_S)
            dist.barrier()
            if dist.get_rank() == 0:
                saved.write_text(str(step + 1))


def _work(seconds: float) -> None:
    time.sleep(seconds / 2)
    Path("data").exists()  # a rank that is to stop by now stops here
    time.sleep(seconds / 2)


def record(case: tuple[int, int, str] = OF_OURS) -> labkit.Timeline:
    """Return the run in which this rank stops in this step, as it loads or as it computes.

    The block in which it stops is left out, as a profiler does, which notes a block when it ends.
    """
    rank, step, part = case
    before_s = (step - 1) * (LOAD_S + COMPUTE_S) + ((step - 1) // SAVE_EVERY) * SAVE_S
    at_s = before_s + (2.0 if part == "loads" else LOAD_S + 10.0)
    world = labkit.virtual(4, cuda=False, failures=[Hang(rank, at_s=at_s)], restarts=1)
    timeline = labkit.run(train, on=world, echo=False).timeline
    left_out = ("failure", "file", "sleep", "operator")
    kept = np.array(
        [
            span.kind not in left_out
            and (span.kind != "span" or span.end_ns - span.start_ns >= WHOLE_S[span.name.split()[0]] * 1e9)
            for span in timeline.rows()
        ]
    )
    shown = timeline.select(kept)
    shown.tables = {
        name: table for name, table in shown.tables.items() if name in ("call", "wait", "clock", "transfer")
    }
    call = shown.tables["call"]
    for row in call["span"][call["failed"]]:  # nothing of it ever moved
        end = shown.end_ns[row]
        for column, value in (("span", row), ("start_ns", end), ("end_ns", end), ("err_ns", 0)):
            shown.tables["transfer"][column] = np.append(shown.tables["transfer"][column], value)
    return shown


def drawn(draw: random.Random) -> tuple[labkit.Timeline, dict[str, Any]]:
    """Return a student's own run, and what its key says."""
    rank, step, part = draw.randrange(4), SAVE_EVERY + draw.randint(4, 19), draw.choice(["loads", "computes"])
    doing = "loading a batch" if part == "loads" else "computing"
    answers = {"rank": rank, "doing": doing, "minutes": 30, "again": (step - 1) % SAVE_EVERY}
    return record((rank, step, part)), {"answers": answers, "within": {"minutes": 0.5}}


if __name__ == "__main__":
    record().save(LABKITS / "recording.json")
    record(OF_CLASS).save(HERE / "recording.json")
