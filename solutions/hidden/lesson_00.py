"""Hidden cases of lesson 00: the drivers, oracles and judges of labkit.checks, on inputs drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable

from labkit.checks.case import Case
from labkit.checks.drawn_cases import drawing
from labkit.checks.lesson_00.averaging import mean_case
from labkit.checks.lesson_00.compression import Pair, gradients_case
from labkit.checks.lesson_00.environments import environment, environments_case, without
from labkit.checks.lesson_00.unheard import drawn, message, messages_case


def _means(draw: random.Random) -> list[Case]:
    return [
        mean_case(draw.randrange(1 << 30), size, (draw.randint(2, 9), *more))
        for size, more in ((2, ()), (3, (2,)), (5, ()), (7, ()))
    ]


def _environments(draw: random.Random) -> list[Case]:
    ranks = [(draw.randrange(world), world, 4) for world in (4, 8, 12, draw.randint(13, 64))]
    later = [environment(draw.randrange(8, 16), 16, 8) for _ in range(3)]
    forgot = [without(name, environment(draw.randrange(1, 8), 8, 4)) for name in ("RANK", "WORLD_SIZE")]
    return [
        environments_case("drawn ranks on one to sixteen machines", [environment(*rank) for rank in ranks]),
        environments_case("the second of two machines", later),
        environments_case("a name is missing", forgot),
    ]


def _pair(draw: random.Random) -> Pair:
    before = [round(draw.uniform(-9, 9), 2) or 1.0 for _ in range(draw.randint(4, 9))]
    before[draw.randrange(len(before))] = 0.0
    change: list[Callable[[float], float]] = [
        float,
        float,
        lambda x: 0.0,
        abs,
        lambda x: -x,
        lambda x: 2 * x,
        lambda x: x + 1,
    ]
    return before, [draw.choice(change)(value) for value in before]


def _gradients(draw: random.Random) -> list[Case]:
    magnitudes = [draw.choice([-1, 1]) * float(draw.randint(1, 50)) for _ in range(8)]
    kept = [abs(value) if abs(value) > 20 else 0.0 for value in magnitudes]
    return [
        gradients_case("drawn changes", [_pair(draw) for _ in range(6)]),
        gradients_case("large entries kept as magnitudes", [(magnitudes, kept), ([-30.0, 40.0], [30.0, 40.0])]),
        gradients_case("dropped alone", [(magnitudes, [v if abs(v) > 20 else 0.0 for v in magnitudes])]),
        gradients_case("doubled", [([3.0, -4.0, 0.5], [6.0, -8.0, 0.0])]),
    ]


def _messages(draw: random.Random) -> list[Case]:
    return [
        messages_case("drawn messages", [drawn(draw.randrange(1 << 30), 6, draw.randint(4, 12)) for _ in range(6)]),
        messages_case("many of few ranks", [drawn(draw.randrange(1 << 30), 3, 20)]),
        messages_case("the same rank twice", [[message(2, 1, 0), *[message(draw.randint(3, 9), 1, None)] * 2]]),
    ]


_CASES = {
    "average": _means,
    "who_am_i": _environments,
    "damaged": _gradients,
    "never_heard": _messages,
}

cases = drawing(_CASES)
