"""What runs in a rank during a check: one case after another, each marked on the timeline."""

from __future__ import annotations

import os
from collections.abc import Sequence

from labkit.checks.case import Values
from labkit.checks.exercise import Driver, Functions
from labkit.checks.wire_format import encode
from labkit.launch.rank import span

CASE_KIND = "case"
OUTPUT_MARK = "\x1e"
"""Begins the line that a rank prints before each case: what follows it was printed in that case."""


def run_cases(driver: Driver, functions: Functions, inputs: Sequence[Sequence[Values]]) -> list[bytes]:
    """Return this rank's result of each case, as bytes.

    Args:
        driver: Of the exercise.
        functions: The learner's.
        inputs: For each case, the inputs of every rank.
    """
    rank = int(os.environ["RANK"])
    results = []
    for number, of_ranks in enumerate(inputs):
        print(f"{OUTPUT_MARK}{number}", flush=True)
        with span(f"case {number}", kind=CASE_KIND):
            result = driver(functions, of_ranks[rank])
        results.append(encode(result))
    return results
