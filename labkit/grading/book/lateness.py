"""What a late attempt loses."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from labkit.errors import ConfigError

_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Lateness:
    """When a lesson is due and what lateness costs.

    Attributes:
        due_at: With its time zone.
        grace: Time after it that costs nothing.
        percent_per_day: Share of the points an attempt loses for each day begun after due_at.
        percent_at_most: The most it loses.
    """

    due_at: datetime
    grace: timedelta = timedelta()
    percent_per_day: float = 10.0
    percent_at_most: float = 100.0

    def __post_init__(self) -> None:
        if self.due_at.tzinfo is None:
            raise ConfigError(
                f"the deadline {self.due_at.isoformat()} has no time zone; "
                "write 2026-12-01T18:00+01:00, or ...Z for UTC"
            )
        for name in ("percent_per_day", "percent_at_most"):
            if not 0 <= getattr(self, name) <= 100:
                raise ConfigError(f"{name} is {getattr(self, name):g}; use 0 to 100")
        if self.grace < timedelta():
            raise ConfigError(f"{self.grace.total_seconds() / 60:g} minutes of grace are below 0; use 0 or more")

    def later(self, extra: timedelta) -> Lateness:
        """Return the same for somebody who has that much more time."""
        return replace(self, due_at=self.due_at + extra)

    def percent_lost(self, handed_in_at: datetime) -> float:
        """Return the share of its points that an attempt loses, 0 to 100."""
        late = handed_in_at - self.due_at
        if late <= self.grace:
            return 0.0
        return min(self.percent_at_most, self.percent_per_day * math.ceil(late / _DAY))
