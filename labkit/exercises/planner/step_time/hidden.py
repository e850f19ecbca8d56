"""Hidden cases of step_time: every plan of jobs that learners do not see."""

from __future__ import annotations

import random
from pathlib import Path

from labkit.checks.case import Case
from labkit.exercises.planner.cases import runs_of
from labkit.exercises.planner.step_time.exercise import step_case


def cases(draw: random.Random) -> list[Case]:
    found = runs_of(Path(__file__).parents[1] / "hidden_runs.json")
    return [step_case(f"{name}, each plan", runs) for name, runs in found.items()]
