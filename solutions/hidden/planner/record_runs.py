"""Records how long every plan of the lesson's jobs takes on the virtual cluster: `python record_runs.py [NAME ...]`.

The visible jobs' runs go to labkit/exercises/planner/runs.json, those of hidden cases to hidden_runs.json beside it.
They come out the same on every machine. Minutes a job.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from labkit.planned_jobs import played
from labkit.plans.planned_step import Job, Plan, every_plan, job_of

FOLDER = Path(__file__).parents[3] / "labkit" / "exercises" / "planner"
VISIBLE: dict[str, Job] = {
    "0.8 B on 16 H100s": job_of(2048, 16, 16, 64, memory_gb=24),
    "8 B on 16 H100s": job_of(5120, 24, 16, 32, vocabulary=32_768),
    "6.4 B on 32 H100s": job_of(4096, 32, 32, 64, vocabulary=131_072, memory_gb=40),
}
HIDDEN: dict[str, Job] = {
    "2.7 B on 16 H100s": job_of(3072, 24, 16, 48, memory_gb=32),
    "3.2 B on 16 H100s, a large vocabulary": job_of(4096, 16, 16, 64, vocabulary=131_072, memory_gb=48),
}


def recorded(job: Job) -> list[list[float]]:
    """Return (data, pipeline, tensor, microbatch, recompute, seconds) of every plan."""
    return [
        [plan.data, plan.pipeline, plan.tensor, plan.microbatch, int(plan.recompute), _rounded(job, plan)]
        for plan in every_plan(job)
    ]


def _rounded(job: Job, plan: Plan) -> float:
    return round(played(job, plan).seconds, 6)


def main(wanted: list[str]) -> None:
    """Record these jobs, by default all, and keep what the files hold of others."""
    for name, jobs in (("runs.json", VISIBLE), ("hidden_runs.json", HIDDEN)):
        path = FOLDER / name
        held = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        for title, job in jobs.items():
            if title in wanted or not wanted:
                held[title] = {"job": vars(job), "runs": recorded(job)}
        lines = [f"{json.dumps(title)}: {json.dumps(about)}" for title, about in held.items()]
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
