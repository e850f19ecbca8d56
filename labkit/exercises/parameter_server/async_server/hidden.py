"""Hidden cases of async_server."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import of_another_kind, seed
from labkit.exercises.parameter_server.async_server.exercise import async_case
from labkit.exercises.parameter_server.crowds import crowd_case


def cases(draw: random.Random) -> list[Case]:
    held, order = dict.fromkeys(range(4), 0), []
    for number in range(14):
        worker = draw.choice([0, 0, 0, 1, 1, 2, 3])
        order.append((worker, held[worker]))
        held[worker] = number + 1
    return [
        of_another_kind(async_case("4 workers, drawn order", seed(draw), order, 4, draw.uniform(0.1, 1.0)), draw),
        crowd_case("at the same time", "AsyncServer", seed(draw), draw.randint(5, 9), 5),
    ]
