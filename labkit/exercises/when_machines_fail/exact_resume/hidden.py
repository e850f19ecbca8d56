"""Hidden cases of exact_resume."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.exercises.when_machines_fail.exact_resume.exercise import resume_case


def cases(draw: random.Random) -> list[Case]:
    def seed() -> int:
        return draw.randrange(100, 2**31)

    return [
        resume_case("before the first step", seed(), 0, 6),
        resume_case("in the first epoch", seed(), draw.choice([1, 3]), 7),
        resume_case("in the second epoch", seed(), draw.choice([5, 6]), 5),
        resume_case("at the end of the second epoch", seed(), 8, draw.choice([3, 6])),
    ]
