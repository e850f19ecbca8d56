"""Records the runs of `late_stage`: a pipeline of which one stage computes its layers again; the last one has the head.

Run it from the repository to write both recordings anew; they come out the same on every machine.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import labkit
from labkit.planned_jobs import played
from labkit.plans.planned_step import Plan, job_of

HERE = Path(__file__).parent
LABKITS = Path(__file__).parents[4] / "labkit" / "exercises" / "planner" / "late_stage"
STAGES, OF_CLASS = 4, 6
_KEPT = ("call", "wait", "clock")


def record(stages: int = STAGES) -> labkit.Timeline:
    """Return a step of so many stages, four layers each, without what a learner does not look at."""
    job = job_of(4096, 4 * stages, stages, 8, vocabulary=32_768)
    timeline = played(job, Plan(1, stages, 1), again=(stages // 3,)).timeline
    timeline.tables = {name: table for name, table in timeline.tables.items() if name in _KEPT}
    return timeline


def drawn(draw: random.Random) -> tuple[labkit.Timeline, dict[str, Any]]:
    """Return a student's own run, and what its key says."""
    stages = draw.randint(3, 8)
    answers = {"rank": stages - 1, "cause": "it has the head", "cure": "fewer layers on that stage"}
    return record(stages), {"answers": answers}


if __name__ == "__main__":
    record().save(LABKITS / "recording.json")
    record(OF_CLASS).save(HERE / "recording.json")
