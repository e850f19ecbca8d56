"""Hidden cases of bucketed_ddp."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.averaging.cases import exchanging
from labkit.exercises.ddp.bucketed_ddp.exercise import bucketed_case


def cases(draw: random.Random) -> list[Case]:
    return exchanging(
        [
            bucketed_case("5 ranks, drawn cap, three steps", seed(draw), 5, 8 * draw.randint(30, 70), 3),
            bucketed_case(
                "3 ranks, another model, small buckets",
                seed(draw),
                3,
                8 * draw.randint(5, 12),
                width=draw.randint(8, 11),
            ),
            bucketed_case("4 ranks, no frozen layer, no shared weight", seed(draw), 4, 400, tied=False, frozen=False),
            bucketed_case("2 ranks, one bucket", seed(draw), 2, 1 << 22, norm=False),
        ]
    )
