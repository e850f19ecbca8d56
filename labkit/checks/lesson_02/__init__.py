"""Checks of lesson 02, ring all-reduce."""

from __future__ import annotations

from labkit.checks.exercise import Exercise

EXERCISES: tuple[Exercise, ...] = ()
