"""What a chain of matrices asks for: one change after another is not enough, nor is the fastest plan of all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from labkit.checks.case import Case
from labkit.exercises.tensor_parallel.split_plan.driver import asked
from labkit.exercises.tensor_parallel.split_plan.exercise import EXERCISE, fastest
from labkit.plans.matrix_splits import SPLITS, Machine, Matrix, memory_bytes, step_seconds

LITTLE, DEEP = EXERCISE.visible[2:]


def climbed(matrices: Sequence[Matrix], machine: Machine) -> list[str]:
    """Return where the best single change leads to, again and again, from columns everywhere."""
    plan = ["columns"] * len(matrices)
    while True:
        near = [[*plan[:place], word, *plan[place + 1 :]] for place in range(len(plan)) for word in SPLITS]
        fitting = [each for each in near if memory_bytes(matrices, each, machine) <= machine.memory_bytes]
        best = min(fitting, key=lambda each: step_seconds(matrices, each, machine))
        if step_seconds(matrices, best, machine) >= step_seconds(matrices, plan, machine):
            return plan
        plan = best


@pytest.mark.parametrize("case", [LITTLE, DEEP], ids=lambda case: str(case.name))
def test_single_changes_get_stuck(case: Case) -> None:
    matrices, machine = asked(case.inputs[0])
    reached, best = (step_seconds(matrices, plan(matrices, machine), machine) for plan in (climbed, fastest))
    assert reached > 1.02 * best


@pytest.mark.parametrize("case", [LITTLE, DEEP], ids=lambda case: str(case.name))
def test_memory_forbids_the_fastest_plan(case: Case) -> None:
    matrices, machine = asked(case.inputs[0])
    free = fastest(matrices, replace(machine, memory_bytes=math.inf))
    assert memory_bytes(matrices, free, machine) > machine.memory_bytes
