"""Hidden cases of fewer_bits."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.gradient_compression.fewer_bits.exercise import bits_case


def cases(draw: random.Random) -> list[Case]:
    return [
        bits_case(
            "drawn shapes", seed(draw), [(draw.randint(5, 60),), (3, draw.randint(2, 9), 4)], draw.uniform(0.5, 9)
        ),
        bits_case("small gradients", seed(draw), [(draw.randint(5, 60),)], 1e-4),
        bits_case("tiny gradients", seed(draw), [(draw.randint(5, 60),), (4, 7)], 10 ** -draw.uniform(6, 8)),
        bits_case("beyond float16's range", seed(draw), [(draw.randint(5, 20),)], 2.0, largest=draw.uniform(7e4, 1e7)),
        bits_case("zeros", seed(draw), [(4, 3)], 0.0),
    ]
