"""Hidden cases of posted_training."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.parameter_server.posted_training.exercise import post_case


def cases(draw: random.Random) -> list[Case]:
    return [
        post_case(f"{size} ranks", seed(draw), size, draw.randint(2, 6), draw.randint(2, 5), draw.uniform(0.1, 1.0))
        for size in (2, 3, 5)
    ]
