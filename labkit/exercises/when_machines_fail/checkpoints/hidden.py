"""Hidden cases of checkpoints."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.when_machines_fail.checkpoints.exercise import checkpoint_case


def cases(draw: random.Random) -> list[Case]:
    first = draw.randint(5, 9)
    left = draw.randint(8, 200)  # of fewer bytes torch.load says something else, and a right answer may not know it
    return [
        checkpoint_case("two saves, from step 0 on", seed(draw), [0, draw.randint(1, 2000)]),
        checkpoint_case("a longer name", seed(draw), [first, first + 4, first + 90, first + 991]),
        checkpoint_case("cut off", seed(draw), [first, 10 * first, 10 * first + 3], left),
        checkpoint_case("started again", seed(draw), [first, first + 2], restart=True),
        checkpoint_case("empty", seed(draw), [99, 100 + first], 0),
    ]
