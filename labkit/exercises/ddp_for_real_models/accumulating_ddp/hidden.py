"""Hidden cases of accumulating_ddp."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.averaging.cases import exchanging
from labkit.exercises.ddp_for_real_models.accumulating_ddp.exercise import accumulating_case


def cases(draw: random.Random) -> list[Case]:
    return exchanging([
        accumulating_case(
            "4 ranks, another model, drawn numbers of passes", seed(draw), 4,
            {"passes": 2, "quiet": 1}, {}, {"passes": 4, "quiet": 3}, width=draw.randint(8, 11),
        ),
        accumulating_case("3 ranks, after an error inside no_sync", seed(draw), 3, {}, {"stumble": True}, {}, two=True),
        accumulating_case("2 ranks, passes each averaged", seed(draw), 2, {"passes": 3}, {"keep": True}),
        accumulating_case("5 ranks, one step", seed(draw), 5, {"passes": 3, "quiet": 2}),
    ])  # fmt: skip
