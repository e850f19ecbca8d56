"""Search for compression plans: python -m tests.plans.compression_plan_search prints what each family reaches.

A family spreads a budget over steps and layers by four numbers. What lesson 10's design calls the best known is the
best of FAMILIES in labkit.exercises.gradient_compression.compression_plan.families: those that win here in one visible
case or another (marked with *).
"""

from __future__ import annotations

import itertools
import sys

from labkit.checks.case import Case
from labkit.checks.values import integer, listed
from labkit.exercises.gradient_compression.compression_plan.exercise import EXERCISE
from labkit.exercises.gradient_compression.compression_plan.families import FAMILIES, Family, plan_of
from labkit.plans.compressed_steps import final_loss

COARSE = tuple(
    itertools.starmap(Family, itertools.product((4, 8), (1, 2, 3, 4, 6), (-0.5, 0.0, 0.5, 1.0), (0.5, 1.0, 1.5)))
)
FINE = tuple(
    itertools.starmap(Family, itertools.product((4,), (2, 3), (-0.25, 0.0, 0.25), (0.0, 0.25, 0.4, 0.6, 0.75)))
)
"""Around the best of the coarse ones."""


def loss_of(family: Family, case: Case) -> float:
    """Return the loss that a family's plan reaches in a case."""
    inputs = case.inputs[0]
    plan = plan_of(family, listed(inputs, "sizes"), integer(inputs, "num_steps"), integer(inputs, "budget_bytes"))
    shapes = [(first, second) for first, second in listed(inputs, "shapes")]
    return final_loss(plan, shapes, integer(case.about, "draws"))


def main() -> None:
    """Print the losses of every family in every visible case, the lowest sum first."""
    found = []
    for family in dict.fromkeys((*FAMILIES, *COARSE, *FINE)):
        found.append(([loss_of(family, case) for case in EXERCISE.visible], family))
    for losses, family in sorted(found, key=lambda each: sum(each[0])):
        numbers = "  ".join(f"{loss:.4f}" for loss in losses)
        sys.stdout.write(f"{'*' if family in FAMILIES else ' '} {numbers}  {family}\n")


if __name__ == "__main__":
    main()
