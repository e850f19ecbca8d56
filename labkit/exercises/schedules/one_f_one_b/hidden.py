"""Hidden cases of one_f_one_b."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.exercises.schedules.writing import order_case
from labkit.exercises.stages.hidden_drawing import ALL


def cases(draw: random.Random) -> list[Case]:
    return [order_case("up to 8 stages and 12 microbatches", "one_f_one_b", ALL)]
