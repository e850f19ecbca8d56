"""How long a step takes and how much of it is waiting; expected values are counted turn by turn."""

from __future__ import annotations

import math

from labkit.checks.formulas import Counted


def _turns(num_stages: int, num_microbatches: int) -> int:
    """Return in how many turns the last stage has run all microbatches, one a turn, played turn by turn."""
    done, turns = [0] * num_stages, 0
    while done[-1] < num_microbatches:
        before = [num_microbatches, *done]
        done = [now + (now < before[stage]) for stage, now in enumerate(done)]
        turns += 1
    return turns


def _bubble(num_stages: int, num_microbatches: int) -> float:
    turns = _turns(num_stages, num_microbatches)
    return (turns - num_microbatches) / turns


def seconds(num_stages: int, num_microbatches: int, batch_seconds: float, overhead_s: float) -> float:
    """Return the seconds that a step takes, with an overhead for each microbatch."""
    turn = batch_seconds / num_microbatches + overhead_s
    return math.fsum(turn for _ in range(_turns(num_stages, num_microbatches)))


def best(num_stages: int, batch_seconds: float, overhead_s: float, num_samples: int) -> float:
    """Return the number of microbatches with which a step is shortest; of several the smallest."""
    costs = [(seconds(num_stages, m, batch_seconds, overhead_s), m) for m in range(1, num_samples + 1)]
    return min(costs)[1]


COUNTED: Counted = {"bubble_share": _bubble, "step_seconds": seconds, "best_num_microbatches": best}
