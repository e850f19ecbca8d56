"""best_microbatches: what is asked, its cases, its mistakes and hints."""

from __future__ import annotations

import math
from collections.abc import Sequence

from labkit.checks.case import Case
from labkit.checks.declared import Mistake
from labkit.checks.formulas import calls_case, formulas
from labkit.exercises.pipeline.best_microbatches.driver import drive
from labkit.exercises.pipeline.bubble_costs import COUNTED, best, seconds


def best_case(name: str, pipelines: Sequence[tuple[int, float, float, int]]) -> Case:
    """Return a case of best_microbatches: (stages, batch_seconds, overhead_s, samples)."""
    return calls_case(name, [("best_num_microbatches", each) for each in pipelines])


def _square_root(num_stages: int, batch_seconds: float, overhead_s: float, num_samples: int) -> float:
    return round(math.sqrt((num_stages - 1) * batch_seconds / overhead_s)) if overhead_s else math.inf


EXERCISE = formulas(
    id="best_microbatches",
    functions=("best_num_microbatches",),
    driver=drive,
    counted=COUNTED,
    visible=(
        best_case("4 stages, 48 ms, 1 ms overhead", [(4, 0.048, 0.001, 64), (4, 0.048, 0.001, 7)]),
        best_case("without overhead; one stage", [(8, 0.1, 0.0, 12), (1, 0.1, 0.01, 12)]),
    ),
    hints=(
        "You have a function that says how long a step takes. What is the simplest way to find its least value?",
        "Call step_seconds for every number of microbatches from 1 to num_samples, and take the one with the least.",
        "min(range(1, num_samples + 1), key=lambda count: step_seconds(num_stages, count, batch_seconds, overhead_s))",
    ),
    mistakes=(
        Mistake("as many as there are samples", "As many microbatches as samples: right only without overhead.",
                {"best_num_microbatches": lambda p, t, o, n: n}),
        Mistake("the rule of thumb", "Four times the number of stages is a rule of thumb; ask step_seconds.",
                {"best_num_microbatches": lambda p, t, o, n: min(4 * p, n)}),
        Mistake("the last number left out",
                "range(1, num_samples) ends before num_samples: num_samples microbatches are allowed too.",
                {"best_num_microbatches": lambda p, t, o, n: best(p, t, o, max(n - 1, 1))}),
        Mistake("the time instead of the number",
                "You returned the least time; return the number of microbatches that gives it: min(..., key=...).",
                {"best_num_microbatches": lambda p, t, o, n: seconds(p, int(best(p, t, o, n)), t, o)}),
        Mistake("the square root alone",
                "The square root is where the curve's derivative is zero: round it the right way, at least 1 and at "
                "most num_samples, or try all numbers.", {"best_num_microbatches": _square_root}),
    ),
)  # fmt: skip
