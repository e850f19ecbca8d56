"""Hidden cases of deal_layers."""

from __future__ import annotations

import itertools
import random

from labkit.checks.case import Case
from labkit.exercises.hybrid_parallelism.deal_layers.exercise import (
    dealt_case,
    fastest_dealt,
    mesh_case,
    one_way_each,
    step_seconds,
)
from labkit.plans.hybrid_step import A100_PCIE, RTX_4090, MeshPlan, job_of


def slow_one_pays_off(name: str, draw: random.Random) -> Case:
    """Return a case that needs more than one way for each number of layers dealt out."""
    while True:
        steps = [[draw.randint(1, 6) for _ in range(draw.randint(2, 5))] for _ in range(4)]
        rows = [list(itertools.accumulate(map(float, row))) for row in steps]
        case = dealt_case(name, rows, draw.randint(6, sum(map(len, rows)) - 2), draw.randint(3, 8))
        if step_seconds(case, one_way_each(case)) > step_seconds(case, fastest_dealt(case)):
            return case


def cases(draw: random.Random) -> list[Case]:
    steps = [[draw.choice([1.0, 1.5, 2.5]) for _ in range(draw.randint(4, 6))] for _ in range(4)]
    thirty = job_of(7168, 48, 64, draw.choice([128, 256]), gpus_per_node=4, nic_bytes_s=6e9, **A100_PCIE)
    seven = job_of(4096, 32, 16, draw.choice([32, 64]), num_tokens=4096, nic_bytes_s=1.5e9, **RTX_4090)
    return [
        slow_one_pays_off("4 stages, a slow one pays off later", draw),
        slow_one_pays_off("4 stages, another slow one that pays off", draw),
        dealt_case("4 stages, 3 microbatches", [list(itertools.accumulate(row)) for row in steps], 12, 3),
        mesh_case("30 B, 8 stages", thirty, MeshPlan((("pipeline", 8), ("data", 8), ("tensor", 1)))),
        mesh_case(
            "7 B, few microbatches, the last stage with the vocabulary", seven,
            MeshPlan((("pipeline", 4), ("data", 4), ("tensor", 1))), last=draw.choice([0.5, 1.5]),
        ),
    ]  # fmt: skip
