"""Hidden cases of hybrid_shards."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.sharded_training.hybrid_shards.exercise import hybrid_case
from labkit.exercises.sharded_training.travels import asking


def cases(draw: random.Random) -> list[Case]:
    odd = draw.choice([5, 7, 11])
    made = [
        hybrid_case("4 ranks, nodes of ranks 0 and 3, 1 and 2", seed(draw), [[0, 3], [1, 2]], [(odd, 3), (odd,)]),
        hybrid_case(
            "6 ranks in 2 nodes, fewer elements than ranks", seed(draw), [[0, 1, 2], [3, 4, 5]], [(2,), (odd, 2)]
        ),
        hybrid_case("3 nodes of one rank", seed(draw), [[0], [1], [2]], [(odd,), (2, 2)]),
        hybrid_case("4 ranks, bfloat16", seed(draw), [[0, 1], [2, 3]], [(odd, 4)], "bfloat16"),
    ]
    return [asking(each, seed(draw)) for each in made]
