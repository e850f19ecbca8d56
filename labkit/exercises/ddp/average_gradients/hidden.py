"""Hidden cases of average_gradients."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.ddp.average_gradients.exercise import gradient_case


def cases(draw: random.Random) -> list[Case]:
    return [
        gradient_case("5 ranks, all of it, another model", seed(draw), 5, width=draw.randint(8, 11)),
        gradient_case("3 ranks, no frozen layer", seed(draw), 3, frozen=False),
        gradient_case("4 ranks, a layer that two of them used", seed(draw), 4, spare=(0, 3), unused=True),
        gradient_case("2 ranks, a layer that rank 1 used", seed(draw), 2, spare=(1,), unused=True),
    ]
