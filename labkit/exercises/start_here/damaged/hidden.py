"""Hidden cases of damaged."""

from __future__ import annotations

import random
from collections.abc import Callable

from labkit.checks.case import Case
from labkit.exercises.start_here.damaged.exercise import Pair, gradients_case


def _pair(draw: random.Random) -> Pair:
    before = [round(draw.uniform(-9, 9), 2) or 1.0 for _ in range(draw.randint(4, 9))]
    before[draw.randrange(len(before))] = 0.0
    change: list[Callable[[float], float]] = [
        float,
        float,
        lambda x: 0.0,
        abs,
        lambda x: -x,
        lambda x: 2 * x,
        lambda x: x + 1,
    ]
    return before, [draw.choice(change)(value) for value in before]


def cases(draw: random.Random) -> list[Case]:
    magnitudes = [draw.choice([-1, 1]) * float(draw.randint(1, 50)) for _ in range(8)]
    kept = [abs(value) if abs(value) > 20 else 0.0 for value in magnitudes]
    quarters = draw.randint(2, 9) / 4
    return [
        gradients_case("drawn changes", [_pair(draw) for _ in range(6)]),
        gradients_case("large entries kept as magnitudes", [(magnitudes, kept), ([-30.0, 40.0], [30.0, 40.0])]),
        gradients_case("dropped alone", [(magnitudes, [v if abs(v) > 20 else 0.0 for v in magnitudes])]),
        gradients_case("one rounded", [([3.0, quarters, -1.0], [3.0, quarters + 1e-5, 0.0])]),
        gradients_case("doubled", [([3.0, -4.0, 0.5], [6.0, -8.0, 0.0])]),
    ]
