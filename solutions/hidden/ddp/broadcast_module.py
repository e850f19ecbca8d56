"""Hidden cases of broadcast_module."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.ddp.broadcast_module.exercise import model_case


def cases(draw: random.Random) -> list[Case]:
    return [
        model_case("5 ranks, all of it", seed(draw), 5),
        model_case("3 ranks, BatchNorm", seed(draw), 3, frozen=False, tied=False),
        model_case("2 ranks, a frozen layer", seed(draw), 2, norm=False),
    ]
