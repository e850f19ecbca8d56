"""Hidden cases of uneven_inputs."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.ddp_for_real_models.uneven_inputs.exercise import uneven_case


def cases(draw: random.Random) -> list[Case]:
    counts = [3, 0, 1, 2]
    draw.shuffle(counts)
    return [
        uneven_case(f"4 ranks with {counts} batches", seed(draw), counts),
        uneven_case("3 ranks, another model, rank 0 has nothing", seed(draw), [0, 2, 3], width=draw.randint(8, 11)),
        uneven_case("2 ranks, as many each", seed(draw), [3, 3]),
    ]
