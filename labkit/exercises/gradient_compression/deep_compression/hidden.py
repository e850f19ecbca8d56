"""Hidden cases of deep_compression: clipping, warm-up, keys, shapes and layout together."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.gradient_compression.deep_compression.exercise import deep_case


def cases(draw: random.Random) -> list[Case]:
    shapes: dict[str | None, tuple[int, ...]] = {
        "a": (draw.randint(20, 60),), "b": (draw.randint(3, 6), 9), "c": (2, 5, draw.randint(2, 4)),
    }  # fmt: skip
    order = [draw.choice([*shapes]) for _ in range(14)]
    return [
        deep_case("clipped and warming up", seed(draw), [(None, (60,))] * 9, ratio=0.02, max_norm=draw.uniform(1, 4),
                  num_ranks=draw.randint(2, 9), warmup=2),
        deep_case("three keys in a drawn order", seed(draw), [(key, shapes[key]) for key in order], ratio=0.05,
                  momentum=draw.uniform(0.3, 0.95), warmup=draw.randint(1, 3)),
        deep_case("gaps, two shapes, clipped", seed(draw), [("a", shapes["b"]), ("b", shapes["c"])] * 4, gaps=True,
                  max_norm=draw.uniform(0.5, 2), num_ranks=4),
        deep_case("one entry of few", seed(draw), [(None, (7,))] * 6, ratio=0.01, momentum=0.5),
    ]  # fmt: skip
