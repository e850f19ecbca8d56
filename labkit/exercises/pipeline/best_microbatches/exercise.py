"""best_microbatches: what is asked, its cases, its mistakes and hints."""

from __future__ import annotations

import math
from collections.abc import Sequence

from labkit.checks.case import Case
from labkit.checks.exercise import Exercise
from labkit.checks.formulas import WrongFormula, calls_case, counting, hints_of, where_wrong
from labkit.exercises.pipeline.best_microbatches.driver import drive
from labkit.exercises.pipeline.bubble_costs import COUNTED, best, seconds

WRONG = {
    "as many as there are samples": WrongFormula(
        "best_num_microbatches",
        lambda p, t, o, n: n,
        "As many microbatches as samples: right only without overhead.",
    ),
    "the rule of thumb": WrongFormula(
        "best_num_microbatches",
        lambda p, t, o, n: min(4 * p, n),
        "Four times the number of stages is a rule of thumb; ask step_seconds.",
    ),
    "the last number left out": WrongFormula(
        "best_num_microbatches",
        lambda p, t, o, n: best(p, t, o, max(n - 1, 1)),
        "range(1, num_samples) ends before num_samples: num_samples microbatches are allowed too.",
    ),
    "the time instead of the number": WrongFormula(
        "best_num_microbatches",
        lambda p, t, o, n: seconds(p, int(best(p, t, o, n)), t, o),
        "You returned the least time; return the number of microbatches that gives it: min(..., key=...).",
    ),
    "the square root alone": WrongFormula(
        "best_num_microbatches",
        lambda p, t, o, n: float("inf") if not o else round(math.sqrt((p - 1) * t / o)),
        "The square root is where the curve's derivative is zero: round it the right way, at least 1 and at most "
        "num_samples, or try all numbers.",
    ),
}


def best_case(name: str, pipelines: Sequence[tuple[int, float, float, int]]) -> Case:
    """Return a case of best_microbatches: (stages, batch_seconds, overhead_s, samples)."""
    return calls_case(name, [("best_num_microbatches", each) for each in pipelines])


EXERCISE = Exercise(
    id="best_microbatches",
    functions=("best_num_microbatches",),
    driver=drive,
    oracle=counting(COUNTED),
    find=where_wrong(COUNTED, WRONG),
    visible=(
        best_case("4 stages, 48 ms, 1 ms overhead", [(4, 0.048, 0.001, 64), (4, 0.048, 0.001, 7)]),
        best_case("without overhead; one stage", [(8, 0.1, 0.0, 12), (1, 0.1, 0.01, 12)]),
    ),
    distributed=False,
    hints=(
        "You have a function that says how long a step takes. What is the simplest way to find its least value?",
        "Call step_seconds for every number of microbatches from 1 to num_samples, and take the one with the least.",
        "min(range(1, num_samples + 1), key=lambda count: step_seconds(num_stages, count, batch_seconds, overhead_s))",
    ),
    mistakes=hints_of(WRONG),
)
