"""Checks of lesson 05, pipelines: what the thirteen exercises must do, and how learners get them wrong."""

from __future__ import annotations

from labkit.checks.exercise import Exercise
from labkit.checks.lesson_05 import (
    bubble,
    budget,
    chunked,
    executing,
    hybrid,
    one_batch,
    paper,
    recompute,
    split_layer,
    writing,
)

EXERCISES: tuple[Exercise, ...] = (
    budget.EXERCISE,
    one_batch.EXERCISE,
    split_layer.EXERCISE,
    bubble.BUBBLE,
    writing.GPIPE,
    paper.EXERCISE,
    writing.ONE_F_ONE_B,
    executing.EXERCISE,
    bubble.BEST,
    recompute.EXERCISE,
    hybrid.EXERCISE,
    chunked.INTERLEAVED,
    chunked.ZERO_BUBBLE,
)
