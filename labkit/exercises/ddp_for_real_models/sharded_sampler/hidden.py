"""Hidden cases of sharded_sampler."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.exercises.ddp_for_real_models.sharded_sampler.exercise import sampler_case


def cases(draw: random.Random) -> list[Case]:
    size, ranks = draw.randint(30, 99), draw.choice([3, 5, 7])
    seed, epochs = draw.randint(1, 10**6), [0, draw.randint(1, 50), None]
    return [
        sampler_case(
            "drawn sizes, three epochs", [{"size": size, "world_size": ranks, "seed": seed, "epochs": epochs}]
        ),
        sampler_case(
            "drop_last, and a size that divides",
            [
                {"size": size, "world_size": ranks, "seed": seed, "drop_last": True, "epochs": [draw.randint(1, 9)]},
                {"size": 6 * ranks, "world_size": ranks, "seed": seed, "epochs": [1, 2]},
            ],
        ),
        sampler_case("in order", [{"size": size, "world_size": ranks, "shuffle": False, "epochs": [3]}]),
        sampler_case("fewer samples than ranks", [{"size": 3, "world_size": 8, "seed": seed, "epochs": [0, 1]}]),
    ]
