"""Hidden cases of mini_data_parallel."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.data_parallel.mini_data_parallel.exercise import nested_case, training_case


def cases(draw: random.Random) -> list[Case]:
    def sizes(count: int, low: int) -> list[dict[str, int]]:
        return [{"size": draw.randint(low, low + 6)} for _ in range(count)]

    return [
        training_case("5 devices, drawn batches, four steps", seed(draw), 5, sizes(4, 6), norm=False),
        training_case("6 devices, few samples", seed(draw), 6, [{"size": 2}, {"size": 1}, {"size": 9}], norm=False),
        training_case("3 devices, BatchNorm, no shared weight", seed(draw), 3, sizes(3, 6), tied=False),
        training_case(
            "2 devices, evaluations and a keyword", seed(draw), 2,
            [{"size": 5, "eval": True}, {"size": 6, "spare": True}, {"size": 3, "eval": True}], unused=True,
        ),
        nested_case("a dict, no offset", seed(draw), 4, draw.randint(5, 9), offset=False, scale=2.0),
        nested_case("fewer samples than devices", seed(draw), 5, 3, offset=True, scale=0.75),
        training_case("3 devices at the same time", seed(draw), 3, sizes(1, 5), norm=False, meet=True),
        training_case("one sample, two kinds of device", seed(draw), ["cpu", "meta"], [{"size": 1}], norm=False),
    ]  # fmt: skip
