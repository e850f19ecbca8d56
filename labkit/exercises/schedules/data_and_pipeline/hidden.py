"""Hidden cases of data_and_pipeline."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import of_another_kind, seed
from labkit.exercises.schedules.data_and_pipeline.exercise import mesh_case


def cases(draw: random.Random) -> list[Case]:
    one, two, three = (draw.randint(1, 9) for _ in range(3))
    return [
        mesh_case("2 pipelines of 3 stages", seed(draw), 3, [one, one + two]),
        of_another_kind(mesh_case("3 pipelines of 2 stages", seed(draw), 2, [one, one + three, two]), draw),
        mesh_case("one pipeline of 2 stages", seed(draw), 2, [two]),
    ]
