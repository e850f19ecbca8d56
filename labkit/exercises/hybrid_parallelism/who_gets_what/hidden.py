"""Hidden cases of who_gets_what."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.exercises.hybrid_parallelism.who_gets_what.exercise import who_case


def cases(draw: random.Random) -> list[Case]:
    size = draw.choice([2, 3, 5])
    return [
        who_case("3 x 2 replicas of 2 stages", {"data": 3, "shard": 2, "pipeline": 2, "tensor": 1}, 12 * size, size),
        who_case(
            "one replica, one microbatch", {"data": 1, "shard": 1, "pipeline": 2, "tensor": 3}, 4 * size, 4 * size
        ),
        who_case(
            "shards do not divide", {"data": 2, "shard": 3, "pipeline": 1, "tensor": 2}, 6 * size + 1, size,
            draw.randrange(100),
        ),
        who_case(
            "4 shards of 2 tensor ranks", {"data": 1, "shard": 4, "pipeline": 2, "tensor": 2}, 8 * size, size,
            draw.randrange(100),
        ),
    ]  # fmt: skip
