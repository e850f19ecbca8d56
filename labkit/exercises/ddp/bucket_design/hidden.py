"""Hidden cases of bucket_design."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.challenge import for_half_and_all
from labkit.exercises.ddp.bucket_design.exercise import design_case
from labkit.exercises.ddp.models import convolutions, gpt, tower


def cases(draw: random.Random) -> list[Case]:
    near, far = (
        (draw.randint(20, 80), draw.randint(60, 200) * 1000),
        (draw.randint(200, 500), draw.randint(4, 9) * 1000),
    )
    wide, long = 64 * draw.randint(4, 8), draw.randint(4_000, 9_000)
    merged_into_one = design_case("equal layers, many machines", tower(wide, 50, long), far)  # by the reference, too
    others = [
        design_case("equal layers, one machine", tower(wide, 30, long), near),
        design_case("convolutions, many machines", convolutions(48, draw.randint(3, 7)), far),
        design_case("a GPT, one machine", gpt(512, draw.randint(6, 10)), near),
        design_case("a GPT, many machines", gpt(512, draw.randint(6, 10)), far),
    ]
    return [merged_into_one, *for_half_and_all(others)]
