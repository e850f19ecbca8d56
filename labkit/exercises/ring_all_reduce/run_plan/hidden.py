"""Hidden cases of run_plan."""

from __future__ import annotations

import random

import torch

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.ring_all_reduce.plan_cases import drawn_plans, plan_case, rotation


def cases(draw: random.Random) -> list[Case]:
    def sizes(count: int) -> list[int]:
        drawn = [draw.randint(1, 4) for _ in range(count)]
        drawn[draw.randrange(count)] = 0
        return drawn

    group = sorted(draw.sample(range(1, 6), 3))
    return [
        plan_case("3 ranks, rotation", rotation(3, 3, draw.choice([1, 2]), 4, (1, 3)), (2, 2, 2), seed(draw)),
        plan_case("2 ranks, drawn", drawn_plans(seed(draw), 2, 3, 5), sizes(3), seed(draw)),
        plan_case("4 ranks, drawn, gaps between steps", drawn_plans(seed(draw), 4, 4, 6), sizes(4), seed(draw)),
        plan_case("7 ranks, drawn, gaps between steps", drawn_plans(seed(draw), 7, 5, 6), sizes(5), seed(draw)),
        plan_case(
            "3 ranks, combine=torch.sub",
            rotation(3, 3, draw.choice([1, 2]), 5, (0, 2, 3)),
            (2, 2, 2),
            seed(draw),
            combine="sub",
        ),
        plan_case(
            "6 ranks, of which 1, 2 and 5 take part",
            drawn_plans(seed(draw), 3, 3, 5),
            (2, 3, 1),
            seed(draw),
            world_size=6,
            group=(1, 2, 5),
        ),
        plan_case(
            f"6 ranks, of which {group} take part, combine=torch.maximum, float64",
            rotation(3, 3, draw.choice([1, 2]), 5, (1, 2, 4)),
            [draw.randint(1, 4)] * 3,
            seed(draw),
            world_size=6,
            group=group,
            combine="maximum",
            dtype=torch.float64,
        ),
    ]
