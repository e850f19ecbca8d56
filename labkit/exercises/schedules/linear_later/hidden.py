"""Hidden cases of linear_later."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.schedules.linear_later.exercise import linear_case


def cases(draw: random.Random) -> list[Case]:
    return [
        linear_case("a layer", seed(draw), (draw.randint(2, 7), draw.randint(2, 7))),
        linear_case("a layer, three dimensions more", seed(draw), (2, 3, 2, 4), frozen=["bias"]),
        linear_case("a layer without bias", seed(draw), (4, 3), bias=False),
        linear_case("a frozen weight", seed(draw), (3, 2, 5), frozen=["weight"]),
    ]
