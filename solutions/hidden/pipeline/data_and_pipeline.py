"""Hidden cases of data_and_pipeline."""

from __future__ import annotations

import random

from hidden.pipeline.drawing import alternating, gpipe, uneven, writer

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.pipeline.data_and_pipeline.exercise import mesh_case


def cases(draw: random.Random) -> list[Case]:
    three = [uneven(draw, 4), [draw.randint(5, 7) for _ in range(4)]]
    two = [uneven(draw, 3), [1, 1, 1], [draw.randint(4, 6) for _ in range(3)]]
    return [
        mesh_case("2 pipelines of 3 stages", seed(draw), 3, three, writer(alternating(3, 4))),
        mesh_case("3 pipelines of 2 stages", seed(draw), 2, two, writer(gpipe(2, 3))),
        mesh_case("one pipeline of 2 stages", seed(draw), 2, [uneven(draw, 3)], writer(alternating(2, 3))),
    ]
