"""Hidden cases of step_time: every plan of jobs that learners do not see."""

from __future__ import annotations

import random
from pathlib import Path

from labkit.checks.case import Case
from labkit.exercises.planner.cases import Runs, runs_of
from labkit.exercises.planner.step_time.exercise import step_case
from labkit.plans.planned_step import Plan, job_of

NARROW = Runs(
    job_of(768, 4, 32, 64, vocabulary=8192),
    {Plan(16, 2, 1, 4): 0.003160, Plan(8, 4, 1, 8): 0.007785, Plan(8, 4, 1, 4): 0.004894},
)


def cases(draw: random.Random) -> list[Case]:
    found = runs_of(Path(__file__).parents[1] / "hidden_runs.json")
    return [
        *(step_case(f"{name}, each plan", runs) for name, runs in found.items()),
        step_case("another narrow GPT on four nodes", NARROW),
    ]
