"""Hidden cases of who_am_i."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.exercises.start_here.who_am_i.exercise import environment, environments_case, without


def cases(draw: random.Random) -> list[Case]:
    ranks = [(draw.randrange(world), world, 4) for world in (4, 8, 12, draw.randint(13, 64))]
    later = [environment(draw.randrange(8, 16), 16, 8) for _ in range(3)]
    forgot = [without(name, environment(draw.randrange(1, 8), 8, 4)) for name in ("RANK", "WORLD_SIZE")]
    return [
        environments_case("drawn ranks on one to sixteen machines", [environment(*rank) for rank in ranks]),
        environments_case("the second of two machines", later),
        environments_case("a name is missing", forgot),
    ]
