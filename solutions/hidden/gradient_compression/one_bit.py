"""Hidden cases of one_bit."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.gradient_compression.one_bit.exercise import signs_case


def cases(draw: random.Random) -> list[Case]:
    return [
        signs_case("sizes that do not divide by eight", seed(draw), [(8 * k + draw.randint(1, 7),) for k in (0, 1, 9)]),
        signs_case("three dimensions", seed(draw), [(2, 3, draw.randint(3, 9))], shift=-0.3),
        signs_case("with zeros", seed(draw), [(draw.randint(20, 40),)], zeros=draw.randint(2, 9)),
    ]
