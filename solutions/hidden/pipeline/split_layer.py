"""Hidden cases of split_layer."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.pipeline.split_layer.exercise import layer_case


def cases(draw: random.Random) -> list[Case]:
    return [
        layer_case("2 ranks", seed(draw), (draw.randint(1, 4), draw.randint(1, 4))),
        layer_case("5 ranks", seed(draw), [draw.randint(1, 3) for _ in range(5)]),
        layer_case(
            "6 ranks, of which 3 take part", seed(draw), [draw.randint(1, 3) for _ in range(3)],
            group=sorted(draw.sample(range(6), 3)), world_size=6,
        ),
    ]  # fmt: skip
