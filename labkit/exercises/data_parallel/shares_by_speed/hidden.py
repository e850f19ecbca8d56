"""Hidden cases of shares_by_speed."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.exercises.data_parallel.shares_by_speed.exercise import speeds_case


def cases(draw: random.Random) -> list[Case]:
    found: list[tuple[int, list[int]]] = []
    while len(found) < 12:
        num_samples, speeds = draw.randint(0, 60), [draw.randint(1, 40) for _ in range(draw.randint(1, 6))]
        remainders = {(num_samples * speed % sum(speeds), speed) for speed in speeds}
        if len({remainder for remainder, _ in remainders}) == len(remainders):  # ties of equal speeds only
            found.append((num_samples, speeds))
    equal: list[tuple[int, list[int]]] = [(8, [4, 1, 1]), (4, [2, 5, 5]), (15, [2, 2, 5]), (10, [1, 1, 4])]
    equal = [(num_samples + draw.randrange(3) * sum(speeds), speeds) for num_samples, speeds in equal]
    return [
        speeds_case("drawn speeds", found),
        speeds_case("equal speeds", [(draw.randint(5, 30), [3] * 7)]),
        speeds_case("other speeds, equal remainders", equal),
    ]
