"""Hidden cases of recompute."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import of_another_kind, seed
from labkit.exercises.schedules.recompute.exercise import recompute_case


def cases(draw: random.Random) -> list[Case]:
    return [
        of_another_kind(recompute_case("plain", seed(draw), draw.randint(3, 7), draw.randint(2, 5)), draw),
        recompute_case(
            "in its turn", seed(draw), draw.randint(3, 7), 3, needs_gradient=draw.random() < 0.5, opposite=True
        ),
        recompute_case("no gradient for x", seed(draw), draw.randint(3, 7), 3, needs_gradient=False),
        recompute_case("dropout", seed(draw), draw.randint(5, 9), 3, dropout=draw.choice([0.3, 0.5])),
        recompute_case("dropout, no gradient for x", seed(draw), 6, 2, dropout=0.4, needs_gradient=False),
        recompute_case("a frozen and an unused parameter", seed(draw), 4, 4, frozen=draw.randint(0, 3), spare=True),
        recompute_case("BatchNorm", seed(draw), draw.randint(3, 7), draw.randint(2, 4), norm=True),
        recompute_case(
            "two calls, BatchNorm, no gradient for x", seed(draw), 4, 2, norm=True, twice=True, needs_gradient=False
        ),
        recompute_case("BatchNorm, no gradient for x", seed(draw), 4, 2, norm=True, needs_gradient=False),
        recompute_case("two calls, a buffer that counts", seed(draw), draw.randint(3, 5), 2, counts=True, twice=True),
        recompute_case(
            "a buffer that counts, and BatchNorm", seed(draw), 4, draw.randint(2, 3), norm=True, counts=True
        ),
    ]
