"""Hidden cases drawn from a seed: what every lesson's file of them begins and ends with."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from labkit.checks.case import Case


def drawing(makers: Mapping[str, Callable[[random.Random], list[Case]]]) -> Callable[[str, int], list[Case]]:
    """Return what the grader calls: the hidden cases of an exercise, the same ones for the same seed.

    It raises KeyError if the lesson has no such exercise.

    Args:
        makers: For each exercise what makes its cases of a source of chance.
    """

    def cases(exercise_id: str, seed: int) -> list[Case]:
        return makers[exercise_id](random.Random(f"{exercise_id} {seed}"))

    return cases


def seed(draw: random.Random) -> int:
    """Return a seed for a case that draws its own inputs, 0 <= seed < 2**30."""
    return draw.randrange(1 << 30)
