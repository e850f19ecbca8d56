"""Hidden cases of combine_gradients."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.hybrid_parallelism.stages import stage_case


def cases(draw: random.Random) -> list[Case]:
    few, many = draw.choice([1, 2, 3]), draw.choice([7, 8, 11])
    return [
        stage_case(
            "2 replicas of 3 stages", seed(draw), {"data": 2, "shard": 1, "pipeline": 3, "tensor": 1},
            num_targets=[few, many],
        ),
        stage_case(
            "3 shards, one stage", seed(draw), {"data": 1, "shard": 3, "pipeline": 1, "tensor": 1},
            num_targets=[many, few, 5],
        ),
        stage_case(
            "the mesh in another order", seed(draw), {"tensor": 2, "pipeline": 2, "shard": 2, "data": 1},
            num_targets=[many, few],
        ),
    ]  # fmt: skip
