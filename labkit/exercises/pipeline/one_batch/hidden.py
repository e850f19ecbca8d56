"""Hidden cases of one_batch."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import of_another_kind, seed
from labkit.exercises.pipeline.one_batch.exercise import batch_case


def cases(draw: random.Random) -> list[Case]:
    return [
        of_another_kind(batch_case("3 stages", seed(draw), 3, draw.randint(2, 6)), draw),
        batch_case("2 stages, samples with rows", seed(draw), 2, draw.randint(2, 5), rows=draw.randint(2, 4)),
        batch_case("5 stages, old gradients, rows", seed(draw), 5, draw.randint(2, 5), rows=2, before=True),
        batch_case("one stage", seed(draw), 1, draw.randint(2, 5)),
    ]
