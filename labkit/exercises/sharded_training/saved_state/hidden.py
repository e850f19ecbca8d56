"""Hidden cases of saved_state."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.sharded_training.saved_state.exercise import saving_case


def cases(draw: random.Random) -> list[Case]:
    resume = draw.choice([1, 3])
    return [
        saving_case("3 ranks, groups, a shared weight", seed(draw), 3, groups=True, resume=resume, apart=True),
        saving_case(
            "2 ranks, groups, a layer not used yet",
            seed(draw),
            2,
            groups=True,
            spare=[resume],
            resume=resume,
            apart=True,
        ),
        saving_case(
            "5 ranks, all of it, another optimizer",
            seed(draw),
            5,
            groups=True,
            spare=[0],
            adamax=True,
            width=draw.randint(8, 11),
            apart=True,
        ),
    ]
