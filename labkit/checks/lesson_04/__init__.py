"""Checks of lesson 04, parameter servers: what the twelve exercises must do, and how learners get them wrong."""

from __future__ import annotations

from labkit.checks.exercise import Exercise
from labkit.checks.lesson_04.asynchronous import EXERCISE as ASYNCHRONOUS
from labkit.checks.lesson_04.backup_workers import EXERCISE as BACKUP_WORKERS
from labkit.checks.lesson_04.bounded import EXERCISE as BOUNDED
from labkit.checks.lesson_04.checkpoints import EXERCISE as CHECKPOINTS
from labkit.checks.lesson_04.hybrid import EXERCISE as HYBRID
from labkit.checks.lesson_04.placing import COPIES, PLACING
from labkit.checks.lesson_04.posted import EXERCISE as POSTED
from labkit.checks.lesson_04.primary_and_backup import EXERCISE as REPLICAS
from labkit.checks.lesson_04.rows import EXERCISE as ROWS
from labkit.checks.lesson_04.server_or_ring import EXERCISE as SERVER_OR_RING
from labkit.checks.lesson_04.synchronous import EXERCISE as SYNCHRONOUS

EXERCISES: tuple[Exercise, ...] = (
    POSTED,
    SYNCHRONOUS,
    ASYNCHRONOUS,
    BOUNDED,
    BACKUP_WORKERS,
    SERVER_OR_RING,
    PLACING,
    ROWS,
    COPIES,
    HYBRID,
    REPLICAS,
    CHECKPOINTS,
)
