"""Hidden cases of together."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.exercises.when_machines_fail.together.exercise import together_case


def cases(draw: random.Random) -> list[Case]:
    first = draw.randrange(1, 90)
    late = [0.0, draw.choice([0.002, 0.2]), draw.choice([0.05, 0.4])]
    draw.shuffle(late)
    return [
        together_case("two ranks", [0, first + 5, first + 100], [draw.choice([0.0, 0.3]), 0.1]),
        together_case("three ranks, one step", [first + 3], late),
        together_case("started again", [first + 7], [draw.choice([0.1, 0.2]), 0.0], restart=True),
        together_case("a single rank", [first, first + 9], [0.0]),
        together_case("three ranks, two steps", [first, first + 10], late[::-1]),
    ]
