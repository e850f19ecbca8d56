"""How long a step takes and how much of it is waiting; expected values are counted turn by turn."""

from __future__ import annotations

import math
from functools import cache

from labkit.checks.formulas import Counted
from labkit.plans.pipeline_records import Op
from labkit.plans.pipeline_timing import place


@cache
def _turns(num_stages: int, num_microbatches: int) -> int:
    """Return in how many turns the last stage has run all microbatches, one a turn, played turn by turn."""
    forwards = [Op("F", number) for number in range(num_microbatches)]
    return round(place("", [forwards] * num_stages).makespan)


def _bubble(num_stages: int, num_microbatches: int) -> float:
    turns = _turns(num_stages, num_microbatches)
    return (turns - num_microbatches) / turns


def seconds(num_stages: int, num_microbatches: int, batch_seconds: float, overhead_s: float) -> float:
    """Return the seconds that a step takes, with an overhead for each microbatch."""
    turn = batch_seconds / num_microbatches + overhead_s
    return math.fsum(turn for _ in range(_turns(num_stages, num_microbatches)))


COUNTED: Counted = {"bubble_share": _bubble, "step_seconds": seconds}
