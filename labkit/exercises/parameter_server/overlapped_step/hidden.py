"""Hidden cases of overlapped_step."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.parameter_server.overlapped_step.exercise import pieces_case


def cases(draw: random.Random) -> list[Case]:
    servers = draw.randint(2, 3)
    sizes = [draw.randint(1, 4) for _ in range(servers * 2 + 1)]
    return [pieces_case("pieces of drawn sizes", seed(draw), 3, servers, sizes, worker=draw.randint(0, 2))]
