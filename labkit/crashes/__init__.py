"""Crash tests: a program crashed at every moment that leaves another state behind, restarted, and its end compared."""

from labkit.crashes.report import CrashPoint, CrashReport
from labkit.crashes.testing import crash_points

__all__ = ["CrashPoint", "CrashReport", "crash_points"]
