"""Hidden cases of hot_keys."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.keys_rows_failures.hot_keys.exercise import loads_case


def cases(draw: random.Random) -> list[Case]:
    count = draw.randint(10, 20)
    hots = [0, 1, draw.randint(2, 8), count]
    return [loads_case("drawn loads", seed(draw), count, servers, hots) for servers in (1, 3, 7)]
