"""Hidden cases of whole_batch_loss."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.data_parallel.whole_batch_loss.exercise import losses_case


def cases(draw: random.Random) -> list[Case]:
    counts = [draw.randint(1, 30) for _ in range(draw.randint(3, 8))]
    holes = list(counts)
    holes[draw.randrange(len(holes))] = 0
    return [
        losses_case("drawn counts", seed(draw), counts),
        losses_case("nothing counted in some", seed(draw), [0, *holes, 0]),
        losses_case("one device", seed(draw), [draw.randint(1, 9)]),
    ]
