"""Hidden cases of checkpoints."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.keys_rows_failures.checkpoints.exercise import checkpoint_case


def cases(draw: random.Random) -> list[Case]:
    first = draw.randint(5, 9)
    return [
        checkpoint_case("in order", seed(draw), f"s{first} s{first + 4} s{first + 90} s{first + 991}"),
        checkpoint_case("broken off", seed(draw), f"w{first} s{first + 1} w{first + 5} r{first + 6} s{first + 7}"),
        checkpoint_case("again", seed(draw), f"s{first} w{first} s{first + 1} r{first + 1} w{first + 1}"),
        checkpoint_case(
            "damaged", seed(draw), f"s1 s{first} d{draw.randint(1, 90)} s{first + 1} s{first + 2} d0 w{first + 3}"
        ),
        checkpoint_case(
            "the power fails",
            seed(draw),
            f"s{first} p{first + 3} s{first + 4} p{first + 4} p{first + 60}",
            opposite=True,
        ),
    ]
