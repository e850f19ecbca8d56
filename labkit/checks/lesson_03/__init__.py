"""Checks of lesson 03, distributed data parallel: what the ten exercises must do, and how learners get them wrong.

Gradients, parameters and buffers are compared in float64 under SGD with a replay in one process; the wire says what
travelled, and in which layer's backward it began.
"""

from __future__ import annotations

from labkit.checks.exercise import Exercise
from labkit.checks.lesson_03 import bucket_plans, overlap_cost, sampling, starting, uneven, wrappers

EXERCISES: tuple[Exercise, ...] = (
    starting.BROADCAST,
    starting.AVERAGE,
    wrappers.OVERLAPPED,
    bucket_plans.EXERCISE,
    wrappers.BUCKETED,
    wrappers.ACCUMULATING,
    wrappers.MINI,
    sampling.EXERCISE,
    overlap_cost.EXERCISE,
    uneven.EXERCISE,
)
