"""Hidden cases of bounded_server."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import of_another_kind, seed
from labkit.exercises.parameter_server.bounded_server.exercise import bounded_case
from labkit.exercises.parameter_server.crowds import crowd_case


def _words(draw: random.Random, count: int, length: int, leave: bool) -> str:
    words = [str(draw.choice([*range(count), 0, 0, 1])) for _ in range(length)]
    if leave:
        for worker in draw.sample(range(count), 2):
            words.insert(draw.randint(length // 2, len(words)), f"-{worker}")
    return " ".join(words)


def cases(draw: random.Random) -> list[Case]:
    found = []
    for count, bound, leave in ((2, 0, False), (3, 1, False), (3, 2, True), (4, 1, True), (5, 3, True)):
        name = f"{count} workers, bound {bound}{', some leave' if leave else ''}"
        found.append(bounded_case(name, seed(draw), _words(draw, count, 30, leave), count, bound))
    found.append(bounded_case("the slowest leaves", seed(draw), "1 0 0 1 0 1 0 -2 1 0 0", 3, 1))
    found[2] = of_another_kind(found[2], draw)
    return [*found, crowd_case("at the same time", "BoundedServer", seed(draw), 6, 4, [draw.randint(0, 2)])]
