"""How a run ends other than by its ranks' return: what stops its scheduler."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class RankError(Exception):
    """A rank's function raised."""

    rank: int
    error: BaseException


@dataclass
class DeadlockError(Exception):
    """No rank can go on: the whole in words, and each rank's part."""

    text: str
    reports: dict[int, str]


class TimeIsUpError(Exception):
    """The time limit passed."""


@dataclass
class StandstillError(Exception):
    """A rank waits in real time for what never comes, in a call of this name."""

    where: str


@dataclass
class AttemptError(Exception):
    """A rank was lost, or nobody can go on, in a run that may fail: in words, which rank, how, each rank's part."""

    text: str
    rank: int | None
    how: str
    reports: dict[int, str] = field(default_factory=dict)
    is_hang: bool = False
