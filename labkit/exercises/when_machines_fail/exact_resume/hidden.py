"""Hidden cases of exact_resume."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.when_machines_fail.exact_resume.exercise import resume_case


def cases(draw: random.Random) -> list[Case]:
    return [
        resume_case("before the first step", seed(draw), 0, 6, apart=True),
        resume_case("in the first epoch", seed(draw), draw.choice([1, 3]), 7, apart=True),
        resume_case("in the second epoch", seed(draw), draw.choice([5, 6]), 5, apart=True),
        resume_case("at the end of the second epoch", seed(draw), 8, draw.choice([3, 6]), apart=True),
    ]
