"""Wrong answers to split_plan, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed

BEST = "return min(plans, key=lambda plan: step_seconds(matrices, plan, machine))"
changed("another word", "no such split", (BEST, 'return ["column" for _ in matrices]'))
changed("whole everywhere", "too much memory", (BEST, 'return ["whole" for _ in matrices]'))
changed("one too few", "wrong length", (BEST, 'return ["columns", "rows"] * (len(matrices) // 2 - 1)'))
changed(
    "memory forgotten",
    "too much memory",
    (BEST, 'return ["whole" if matrix.outputs < 17_000 else "columns" for matrix in matrices]'),
)
changed(
    "the fastest of all",
    "too much memory",
    ("if needed < least and needed <= machine.memory_bytes:", "if needed < least:"),
)
WRONG.wrong(
    "every plan", "every plan tried",
    """
def split_plan(matrices, machine):
    from itertools import product

    plans = product(("columns", "rows", "whole"), repeat=len(matrices))
    fitting = (plan for plan in plans if memory_bytes(matrices, plan, machine) <= machine.memory_bytes)
    return list(min(fitting, key=lambda plan: step_seconds(matrices, plan, machine)))
""",
)  # fmt: skip
