"""Hidden cases of never_heard."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.exercises.start_here.never_heard.exercise import drawn, message, messages_case


def cases(draw: random.Random) -> list[Case]:
    return [
        messages_case("drawn messages", [drawn(draw.randrange(1 << 30), 6, draw.randint(4, 12)) for _ in range(6)]),
        messages_case("many of few ranks", [drawn(draw.randrange(1 << 30), 3, 20)]),
        messages_case("the same rank twice", [[message(2, 1, 0), *[message(draw.randint(3, 9), 1, None)] * 2]]),
    ]
