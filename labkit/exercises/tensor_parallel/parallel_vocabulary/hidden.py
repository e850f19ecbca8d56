"""Hidden cases of parallel_vocabulary."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.tensor_parallel.parallel_vocabulary.exercise import vocabulary_case
from labkit.exercises.tensor_parallel.parallel_vocabulary.parts import EMBED, LOSS


def cases(draw: random.Random) -> list[Case]:
    odd = draw.randint(62, 75)
    return [
        vocabulary_case(
            "embed, 4 ranks, two groups", seed(draw), 4, EMBED, draw.choice([61, 67]), groups=[[0, 2], [1, 3]]
        ),
        vocabulary_case("loss, 4 ranks, uneven", seed(draw), 4, LOSS, odd, ignored=draw.randint(1, 4)),
        vocabulary_case(
            "loss, two groups, one of large logits", seed(draw), 4, LOSS, odd, ignored=2, groups=[[1, 2], [0, 3]],
            largest_of_last=2500.0,
        ),
        vocabulary_case("loss, 3 ranks, large logits, ignored", seed(draw), 3, LOSS, odd, ignored=3, largest=3000.0),
    ]  # fmt: skip
