"""Hidden cases of fewer_bits: size, dtype and layout together."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.gradient_compression.fewer_bits.exercise import bits_case


def cases(draw: random.Random) -> list[Case]:
    drawn = [(draw.randint(5, 60),), (3, draw.randint(2, 9), 4)]
    return [
        bits_case("drawn shapes", seed(draw), drawn, draw.uniform(0.5, 9)),
        bits_case("drawn shapes, not contiguous", seed(draw), drawn, draw.uniform(0.5, 9), gaps=True, double=0),
        bits_case(
            "tiny gradients, not contiguous",
            seed(draw),
            [(draw.randint(5, 60),), (4, 7)],
            10 ** -draw.uniform(6, 8),
            gaps=True,
        ),
        bits_case(
            "beyond float16's range, float64",
            seed(draw),
            [(draw.randint(5, 20),)],
            2.0,
            largest=draw.uniform(7e4, 1e7),
            double=0,
        ),
        bits_case("zeros of float64, not contiguous", seed(draw), [(4, 3)], 0.0, gaps=True, double=0),
    ]
