"""Hidden cases of flat_shards."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.sharded_training.flat_shards.exercise import shards_case
from labkit.exercises.sharded_training.travels import asking


def cases(draw: random.Random) -> list[Case]:
    odd = draw.choice([5, 7, 11])
    made = [
        shards_case("3 ranks, sizes that do not divide", seed(draw), 3, [(odd, 4), (odd,), (2, 2, 2)], turn=True),
        shards_case("4 ranks, fewer elements than ranks", seed(draw), 4, [(2,), (3, odd)]),
        shards_case("3 ranks, bfloat16", seed(draw), 3, [(odd,), (4, 3)], "bfloat16"),
    ]
    return [asking(each, seed(draw)) for each in made]
