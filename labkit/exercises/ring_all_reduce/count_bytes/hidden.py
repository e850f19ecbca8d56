"""Hidden cases of count_bytes."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.exercises.ring_all_reduce.count_bytes.exercise import bytes_case


def cases(draw: random.Random) -> list[Case]:
    pairs = [(draw.randint(100, 10**9), world_size) for world_size in (2, 3, 5, 7, 8, 1, draw.randint(9, 1024))]
    return [bytes_case("drawn sizes, 1 to 1024 ranks", pairs)]
