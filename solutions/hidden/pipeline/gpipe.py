"""Hidden cases of gpipe."""

from __future__ import annotations

import random

from hidden.pipeline.drawing import ALL

from labkit.checks.case import Case
from labkit.exercises.pipeline.writing import schedule_case


def cases(draw: random.Random) -> list[Case]:
    return [schedule_case("up to 8 stages and 12 microbatches", "gpipe", ALL)]
