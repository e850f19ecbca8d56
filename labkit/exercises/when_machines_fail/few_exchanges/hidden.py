"""Hidden cases of few_exchanges."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.challenge import for_half_and_all
from labkit.exercises.when_machines_fail.few_exchanges.crews import CREWS
from labkit.exercises.when_machines_fail.few_exchanges.exercise import crew_case


def cases(draw: random.Random) -> list[Case]:
    seeds = tuple(draw.sample(range(100, 100_000), 2))
    return for_half_and_all([
        crew_case(name, seeds, draw.randrange(100_000), draw.choice([0.6, 0.8]), draw.choice([0.7, 0.8]))
        for name in list(CREWS)[1:]
    ])  # fmt: skip
