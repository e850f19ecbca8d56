"""Hidden cases of sharded_optimizer."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.sharded_training.sharded_optimizer.exercise import optimizer_case


def cases(draw: random.Random) -> list[Case]:
    one = draw.randrange(3)
    return [
        optimizer_case(
            "3 ranks, groups, a shared weight, another optimizer",
            seed(draw),
            3,
            groups=True,
            num_steps=4,
            adamax=True,
            apart=True,
        ),
        optimizer_case("2 ranks, a layer that is used once", seed(draw), 2, spare=[one], slower=True, apart=True),
        optimizer_case(
            "5 ranks, another model",
            seed(draw),
            5,
            groups=True,
            slower=True,
            spare=[one],
            width=draw.randint(8, 11),
            apart=True,
        ),
    ]
