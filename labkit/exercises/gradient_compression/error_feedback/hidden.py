"""Hidden cases of error_feedback."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import of_another_kind, seed
from labkit.exercises.gradient_compression.error_feedback.exercise import feedback_case
from labkit.exercises.gradient_compression.unpacked import WINDOW


def cases(draw: random.Random) -> list[Case]:
    keys: list[str | None] = ["a", "b", "c"]
    sizes: dict[str | None, int] = {key: draw.randint(3, 9) for key in keys}
    order = [draw.choice(keys) for _ in range(12)]
    return [
        feedback_case("one key, ten steps", seed(draw), [(None, 7)] * 10, step=draw.uniform(0.5, 2)),
        of_another_kind(
            feedback_case("three keys in a drawn order", seed(draw), [(key, sizes[key]) for key in order]), draw
        ),
        feedback_case("three keys of one size", seed(draw), [(key, 6) for key in order], step=0.7),
        feedback_case("a compressor that keeps some entries", seed(draw), [("a", 9)] * 4, kind=WINDOW),
    ]
