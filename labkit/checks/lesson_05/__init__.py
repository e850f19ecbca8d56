"""Checks of lesson 05, pipelines: what the fourteen exercises must do, and how learners get them wrong."""

from __future__ import annotations

from labkit.checks.exercise import Exercise
from labkit.checks.lesson_05.bubble import BEST, BUBBLE
from labkit.checks.lesson_05.budget import EXERCISE as BUDGET
from labkit.checks.lesson_05.chunked import INTERLEAVED, ZERO_BUBBLE
from labkit.checks.lesson_05.executing import EXERCISE as EXECUTING
from labkit.checks.lesson_05.hybrid import EXERCISE as HYBRID
from labkit.checks.lesson_05.one_batch import EXERCISE as ONE_BATCH
from labkit.checks.lesson_05.paper import EXERCISE as PAPER
from labkit.checks.lesson_05.recompute import EXERCISE as RECOMPUTE
from labkit.checks.lesson_05.running import EXERCISE as RUNNING
from labkit.checks.lesson_05.split_layer import EXERCISE as SPLIT_LAYER
from labkit.checks.lesson_05.writing import GPIPE, ONE_F_ONE_B

EXERCISES: tuple[Exercise, ...] = (
    BUDGET,
    ONE_BATCH,
    SPLIT_LAYER,
    BUBBLE,
    GPIPE,
    PAPER,
    ONE_F_ONE_B,
    EXECUTING,
    BEST,
    RECOMPUTE,
    HYBRID,
    INTERLEAVED,
    ZERO_BUBBLE,
    RUNNING,
)
