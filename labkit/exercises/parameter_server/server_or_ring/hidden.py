"""Hidden cases of server_or_ring."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.exercises.parameter_server.server_or_ring.exercise import server_case


def cases(draw: random.Random) -> list[Case]:
    worlds = [(draw.randint(1, 100), draw.randint(1, 20)) for _ in range(6)] + [(3, 7), (7, 3), (64, 8)]
    return [
        server_case("drawn worlds", worlds, draw.uniform(1e5, 1e9), draw.uniform(1e-6, 1e-3), draw.uniform(1e8, 5e10))
    ]
