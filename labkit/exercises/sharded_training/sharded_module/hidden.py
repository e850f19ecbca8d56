"""Hidden cases of sharded_module."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.sharded_training.sharded_module.exercise import module_case
from labkit.exercises.sharded_training.travels import asking


def cases(draw: random.Random) -> list[Case]:
    some = draw.choice(
        [("stem", "fixed", "head"), ("stem", "mix", "fixed", "remix"), ("mix", "fixed", "remix", "head")]
    )
    made = [
        module_case("3 ranks, a shared weight, a frozen block", seed(draw), 3, num_steps=2),
        module_case(
            "4 ranks, another model, nothing frozen", seed(draw), 4, tied=False, frozen=False, width=draw.randint(8, 11)
        ),
        module_case("2 ranks, other blocks", seed(draw), 2, blocks=some),
        module_case("3 ranks, blocks in bfloat16", seed(draw), 3, dtype="bfloat16", num_steps=2),
    ]
    return [asking(each, seed(draw)) for each in made]
