"""Checks of lesson 02, ring all-reduce: what the twelve exercises must do, and how learners get them wrong."""

from __future__ import annotations

from labkit.checks.exercise import Exercise
from labkit.checks.lesson_02 import (
    byte_counts,
    chunking,
    drop_in,
    exchange,
    executing,
    halving_doubling,
    hierarchical,
    planning,
    reduce_to_root,
    ring,
    seconds,
    tree,
)

EXERCISES: tuple[Exercise, ...] = (
    reduce_to_root.EXERCISE,
    byte_counts.EXERCISE,
    chunking.EXERCISE,
    planning.EXERCISE,
    executing.EXERCISE,
    ring.EXERCISE,
    drop_in.EXERCISE,
    seconds.EXERCISE,
    tree.EXERCISE,
    halving_doubling.EXERCISE,
    exchange.EXERCISE,
    hierarchical.EXERCISE,
)
