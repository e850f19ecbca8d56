"""Hidden cases of parallel_apply."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import of_another_kind, seed
from labkit.exercises.data_parallel.parallel_apply.exercise import threads_case


def cases(draw: random.Random) -> list[Case]:
    kinds = draw.sample(["ValueError", "KeyError", "BadSampleError"], 3)
    return [
        threads_case("5 replicas, a keyword", seed(draw), 5, scale=draw.choice([0.25, 3.0]), opposite=True),
        of_another_kind(threads_case("3 replicas, under no_grad", seed(draw), 3, gradients=False), draw),
        threads_case("more than 32 replicas", seed(draw), draw.randint(33, 36)),
        threads_case("one replica", seed(draw), 1),
        threads_case("the last of 4 raises", seed(draw), 4, failing={3: kinds[0]}),
        threads_case("two of 3 raise", seed(draw), 3, failing={2: kinds[1], 0: kinds[2]}, opposite=True),
    ]
