"""Every error labkit raises.

::

    LabkitError
    ├── ConfigError (ValueError)      what you asked for is not possible: the message says what is
    │   └── NoSuchRank                a send, a receive or a root names a rank that the group does not have
    ├── LessonError (ValueError)      a lesson source, a notebook or a submission is not valid
    ├── EnvironmentProblem            something outside labkit is missing or refused: a port, a program, disk space
    └── RunError                      a run started and did not finish
        ├── RankFailed                a rank raised, exited or was killed
        ├── HostLost                  a host of a cluster no longer answers
        └── RunTimeout                the time limit passed, or no rank can go on (a deadlock)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class LabkitError(Exception):
    """Parent of every error labkit raises."""


class ConfigError(LabkitError, ValueError):
    """What you asked for is not possible; the message gives the numbers and says what to change."""


class NoSuchRank(ConfigError):
    """A call names a rank that its group does not have."""


class LessonError(LabkitError, ValueError):
    """A lesson source, a notebook or a submission is not valid; the message says where and why."""


class EnvironmentProblem(LabkitError):
    """Something outside labkit is missing or refused; the message says what to install or change."""


class RunError(LabkitError):
    """A run started and did not finish.

    Attributes:
        rank: The rank that failed first, or None where no single rank is to blame.
        reports: For each rank that has one, what is known of it: its traceback, or the line it stood on.
        output: What each rank printed, one string per rank.
        timeline: The labkit.Timeline of what was recorded until the end, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        rank: int | None = None,
        reports: Mapping[int, str] | None = None,
        output: tuple[str, ...] = (),
        timeline: Any = None,
    ) -> None:
        super().__init__(message)
        self.rank = rank
        self.reports = dict(reports or {})
        self.output = output
        self.timeline = timeline


class RankFailed(RunError):
    """A rank raised an exception, exited, or was killed by a signal."""


class HostLost(RunError):
    """A host of a cluster no longer answers: it is down, hangs, or is cut off."""


class RunTimeout(RunError):
    """The time limit passed, or every rank waits for another (a deadlock)."""
