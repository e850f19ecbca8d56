"""Hidden cases of mini_ddp."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.averaging.cases import exchanging
from labkit.exercises.ddp_for_real_models.mini_ddp.exercise import mini_case


def cases(draw: random.Random) -> list[Case]:
    one = draw.randrange(5)
    return exchanging(
        [
            mini_case("5 ranks, a layer that one of them uses", seed(draw), 5, {0: [one], 2: [one]}),
            mini_case("3 ranks, a layer that nobody uses", seed(draw), 3, {}, norm=False),
            mini_case(
                "4 ranks, another model, one after the other",
                seed(draw),
                4,
                {0: [0], 1: [1, 2], 2: [3]},
                tied=False,
                width=draw.randint(8, 11),
            ),
            mini_case("3 ranks, gradients of zero", seed(draw), 3, {1: [draw.randrange(3)]}, perfect=1),
            mini_case("3 ranks, a layer that one uses only inside no_sync", seed(draw), 3, {2: [one % 3]}, quiet=2),
            mini_case("2 ranks, always used", seed(draw), 2, {0: [0, 1], 1: [0, 1], 2: [0, 1]}, counted=(2, 1)),
        ]
    )
