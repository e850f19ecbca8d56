"""Hidden cases of scattered_gradients."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.sharded_training.scattered_gradients.exercise import scattering_case
from labkit.exercises.sharded_training.travels import asking


def cases(draw: random.Random) -> list[Case]:
    made = [
        scattering_case("3 ranks, groups", seed(draw), 3, groups=True, num_steps=draw.randint(2, 4)),
        scattering_case(
            "4 ranks, another model, nothing frozen", seed(draw), 4, frozen=False, width=draw.randint(8, 11)
        ),
        scattering_case(
            "2 ranks, many steps of another optimizer", seed(draw), 2, num_steps=5, tied=False, adamax=True
        ),
    ]
    return [asking(each, seed(draw)) for each in made]
