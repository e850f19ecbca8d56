"""Hidden cases of replicate."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.data_parallel.replicate.exercise import replicas_case


def cases(draw: random.Random) -> list[Case]:
    return [
        replicas_case("5 devices, another model", seed(draw), 5, width=draw.randint(8, 11)),
        replicas_case("3 devices, no shared weight, no frozen layer", seed(draw), 3, tied=False, frozen=False),
        replicas_case("2 devices, evaluation", seed(draw), 2, train=False),
        replicas_case("one device", seed(draw), 1),
        replicas_case("other devices", seed(draw), ["cpu", "meta", "meta"]),
    ]
