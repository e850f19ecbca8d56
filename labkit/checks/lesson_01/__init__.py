"""Checks of lesson 01, data parallelism in one process: what its exercises must do, and how learners get them wrong.

Values and gradients are compared in float64 with plain loops in one process. Threads are proved by replicas that wait
for one another; the plan of a step is data, and its par is played on virtual devices.
"""

from __future__ import annotations

from labkit.checks.exercise import Exercise
from labkit.checks.lesson_01 import (
    applying,
    gathering,
    loading,
    losses,
    moving,
    plan_costs,
    replicating,
    scattering,
    speeds,
    wrapping,
)

EXERCISES: tuple[Exercise, ...] = (
    scattering.EXERCISE,
    gathering.EXERCISE,
    replicating.EXERCISE,
    applying.EXERCISE,
    wrapping.EXERCISE,
    losses.EXERCISE,
    moving.EXERCISE,
    plan_costs.EXERCISE,
    speeds.EXERCISE,
    loading.EXERCISE,
)
