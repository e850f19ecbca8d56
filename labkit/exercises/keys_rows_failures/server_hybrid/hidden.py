"""Hidden cases of server_hybrid."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import of_another_kind, seed
from labkit.exercises.keys_rows_failures.server_hybrid.exercise import hybrid_case


def cases(draw: random.Random) -> list[Case]:
    return [
        hybrid_case("2 workers, 2 steps", seed(draw), 2, draw.randint(2, 5), 2),
        of_another_kind(hybrid_case("4 workers, 3 steps", seed(draw), 4, draw.randint(2, 4), 3), draw),
        hybrid_case("6 ranks, of which 3 train", seed(draw), 3, 3, 2, group=sorted(draw.sample(range(5), 3))),
    ]
