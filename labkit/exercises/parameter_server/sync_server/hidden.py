"""Hidden cases of sync_server."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import of_another_kind, seed
from labkit.exercises.parameter_server.crowds import crowd_case
from labkit.exercises.parameter_server.sync_server.exercise import sync_case


def cases(draw: random.Random) -> list[Case]:
    found = []
    for count in (2, 3, 5):
        orders = [draw.sample(range(count), count) for _ in range(draw.randint(3, 5))]
        found.append(sync_case(f"{count} workers", seed(draw), orders, draw.uniform(0.1, 1.0), count + 1, count == 3))
    found[-1] = of_another_kind(found[-1], draw)
    return [*found, crowd_case("at the same time", "SyncServer", seed(draw), draw.randint(4, 7), 4)]
