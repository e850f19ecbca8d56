"""Hidden cases of sparse_rows."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import of_another_kind, seed
from labkit.exercises.keys_rows_failures.sparse_rows.exercise import rows_case


def cases(draw: random.Random) -> list[Case]:
    return [
        rows_case("2 servers", seed(draw), 2, 15, 25),
        of_another_kind(rows_case("5 servers", seed(draw), 5, 30, 12), draw),
        rows_case("6 servers, most of them idle", seed(draw), 6, 10, 8, homes=sorted(draw.sample(range(6), 2))),
        rows_case("one key again and again", seed(draw), 3, 1, 9),
    ]
