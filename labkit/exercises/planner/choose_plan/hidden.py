"""Hidden cases of choose_plan: jobs that learners do not see, with memory that is drawn."""

from __future__ import annotations

import random
from pathlib import Path

from labkit.checks.case import Case
from labkit.checks.challenge import for_half_and_all
from labkit.exercises.planner.cases import runs_of
from labkit.exercises.planner.choose_plan.exercise import choice_case

HIDDEN = Path(__file__).parents[1] / "hidden_runs.json"
MEMORY_GB = (
    ("2.7 B on 16 H100s", (5,)),
    ("2.7 B on 16 H100s", (14,)),
    ("3.2 B on 16 H100s, a large vocabulary", (26, 28)),
    ("6.4 B on 32 H100s", (12, 14, 20)),
)


def cases(draw: random.Random) -> list[Case]:
    found = {**runs_of(HIDDEN), **runs_of()}
    drawn = [(name, draw.choice(sizes)) for name, sizes in MEMORY_GB]
    named = {name: name.replace("H100s", "GPUs").split(",")[0] for name, _ in MEMORY_GB}
    return for_half_and_all(
        [choice_case(f"{named[name]} with {memory} GB", found[name], memory) for name, memory in drawn]
    )
