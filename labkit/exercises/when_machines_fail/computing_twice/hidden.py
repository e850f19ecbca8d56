"""Hidden cases of computing_twice."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.when_machines_fail.computing_twice.exercise import twice_case


def cases(draw: random.Random) -> list[Case]:
    first, second = draw.randrange(5), draw.randrange(4)
    return [
        twice_case("5 ranks, one is broken", seed(draw), 5, first, apart=True),
        twice_case("4 ranks, one was wrong once", seed(draw), 4, second, "own", apart=True),
        twice_case("4 ranks, one checks wrongly", seed(draw), 4, 3 - second, "here", apart=True),
        twice_case("3 ranks, one is broken", seed(draw), 3, draw.randrange(3), apart=True),
        twice_case("5 ranks, all sound", seed(draw), 5, apart=True),
    ]
