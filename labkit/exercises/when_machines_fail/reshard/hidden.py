"""Hidden cases of reshard."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.when_machines_fail.reshard.exercise import reshard_case


def cases(draw: random.Random) -> list[Case]:
    size = draw.randint(20, 60)
    return [
        reshard_case("fewer", seed(draw), {"a": size, "b": 7, "c": size + 1}, 5, 3, apart=True),
        reshard_case("more", seed(draw), {"a": size, "b": 3}, 3, 7, apart=True),
        reshard_case("as many", seed(draw), {"a": size, "b": 4}, 4, 4, apart=True),
        reshard_case("onto one", seed(draw), {"a": size, "b": 1}, draw.randint(2, 6), 1, apart=True),
        reshard_case("from one", seed(draw), {"a": size, "b": 2}, 1, draw.randint(4, 6), apart=True),
    ]
