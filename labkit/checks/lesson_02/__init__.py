"""Checks of lesson 02, ring all-reduce: what the twelve exercises must do, and how learners get them wrong."""

from __future__ import annotations

from labkit.checks.exercise import Exercise
from labkit.checks.lesson_02 import (
    costs,
    exchange,
    executing,
    halving_doubling,
    hierarchical,
    planning,
    reduce_to_root,
    ring,
    tree,
)

EXERCISES: tuple[Exercise, ...] = (
    reduce_to_root.EXERCISE,
    costs.BYTES,
    planning.BOUNDS,
    planning.PLAN,
    executing.EXERCISE,
    ring.SUM,
    ring.DROP_IN,
    costs.SECONDS,
    tree.TREE,
    halving_doubling.HALVING,
    exchange.EXERCISE,
    hierarchical.EXERCISE,
)
