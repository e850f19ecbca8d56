"""Hidden cases of ring_attention."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.tensor_parallel.ring_attention.exercise import attention_case, places_case


def cases(draw: random.Random) -> list[Case]:
    return [
        places_case("places on 4 ranks", 4, 8 * draw.randint(2, 5)),
        attention_case("4 ranks, mixed, large scores", seed(draw), 4, draw.randint(3, 6), "mixed", scale=1500.0),
        attention_case("3 ranks, the first tokens on the last rank", seed(draw), 3, draw.randint(2, 5), "backwards"),
    ]
