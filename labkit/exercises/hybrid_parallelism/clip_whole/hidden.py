"""Hidden cases of clip_whole."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.hybrid_parallelism.stages import stage_case


def cases(draw: random.Random) -> list[Case]:
    limit = draw.choice([0.3, 0.7, 2.0])
    return [
        stage_case(
            "3 stages of 2 tensor ranks", seed(draw), {"data": 1, "shard": 1, "pipeline": 3, "tensor": 2},
            max_norm=limit,
        ),
        stage_case(
            "2 replicas of 3 shards", seed(draw), {"data": 2, "shard": 3, "pipeline": 1, "tensor": 1}, max_norm=limit
        ),
        stage_case(
            "the mesh in another order, a short gradient", seed(draw),
            {"tensor": 2, "pipeline": 2, "data": 2, "shard": 1}, max_norm=draw.choice([50.0, 80.0]),
        ),
    ]  # fmt: skip
