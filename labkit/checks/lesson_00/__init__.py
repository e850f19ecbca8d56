"""Checks of lesson 00, start here: a mean over ranks, and three tools that find the faults of a widely copied post."""

from __future__ import annotations

from labkit.checks.exercise import Exercise
from labkit.checks.lesson_00 import averaging, compression, environments, unheard

EXERCISES: tuple[Exercise, ...] = (
    averaging.EXERCISE,
    environments.EXERCISE,
    compression.EXERCISE,
    unheard.EXERCISE,
)
