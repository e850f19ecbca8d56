"""Hidden cases of overlapped_ddp."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.averaging.cases import exchanging
from labkit.exercises.ddp.overlapped_ddp.exercise import overlapped_case


def cases(draw: random.Random) -> list[Case]:
    return exchanging(
        [
            overlapped_case("5 ranks, another model, three steps", seed(draw), 5, 3, width=draw.randint(8, 11)),
            overlapped_case("3 ranks, no frozen layer", seed(draw), 3, frozen=False),
            overlapped_case("2 ranks, no BatchNorm", seed(draw), 2, norm=False),
        ]
    )
