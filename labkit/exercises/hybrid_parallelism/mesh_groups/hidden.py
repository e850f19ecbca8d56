"""Hidden cases of mesh_groups."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.hybrid_parallelism.mesh_groups.exercise import mesh_case


def cases(draw: random.Random) -> list[Case]:
    first, second = draw.choice([("stage", "copy"), ("expert", "tensor"), ("pipeline", "data")])
    return [
        mesh_case(f"{first} 2 x {second} 3", seed(draw), {first: 2, second: 3}, [[first], [second], [first, second]]),
        mesh_case(
            "4 ranks, two axes of one rank", seed(draw), {"data": 1, "pipeline": 2, "shard": 1, "tensor": 2},
            [["shard"], ["pipeline"], ["data", "tensor"]],
        ),
        mesh_case(
            "8 ranks, an axis in the middle", seed(draw), {"pipeline": 2, "tensor": 2, "data": 2},
            [["tensor"], ["pipeline", "data"]], asked=sorted(draw.sample(range(8), 3)),
        ),
    ]  # fmt: skip
