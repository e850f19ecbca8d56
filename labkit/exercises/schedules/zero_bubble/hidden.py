"""Hidden cases of zero_bubble."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.exercises.schedules.writing import order_case


def cases(draw: random.Random) -> list[Case]:
    asked = [(p, m) for p in range(1, 9) for m in (p, p + 1, 2 * p, 3 * p + 1)]
    return [order_case("up to 8 stages", "zero_bubble", asked)]
