"""Hidden cases of hierarchical_all_reduce."""

from __future__ import annotations

import random

import torch

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.collectives.hierarchical_all_reduce.exercise import nodes_case
from labkit.exercises.sums_over_ranks.hidden_drawing import not_divisible
from labkit.exercises.sums_over_ranks.sums import used_before


def cases(draw: random.Random) -> list[Case]:
    return [
        nodes_case(seed(draw), 4, 2, (not_divisible(draw, 4, 9, 30),)),
        nodes_case(seed(draw), 6, 3, (not_divisible(draw, 6, 13, 40),)),
        nodes_case(seed(draw), 6, 2, (draw.randint(2, 4), 5)),
        nodes_case(seed(draw), 8, 4, (not_divisible(draw, 8, 17, 40),)),
        nodes_case(seed(draw), 4, 4, (draw.randint(5, 9),)),
        nodes_case(seed(draw), 3, 1, (draw.randint(5, 9),)),
        nodes_case(seed(draw), *draw.choice([(4, 3), (5, 2), (6, 4)]), (draw.randint(5, 9),)),
        nodes_case(seed(draw), 8, 2, (not_divisible(draw, 8, 17, 40),), torch.float64),
        used_before(nodes_case(seed(draw), 6, 3, (not_divisible(draw, 6, 13, 30),)), seed(draw), draw.randint(1, 5)),
    ]
