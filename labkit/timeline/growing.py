"""A place in the notebook for the timeline of a job that is still running."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from labkit.widgets.growing import GrowingTimeline


def growing_timeline() -> GrowingTimeline | None:
    """Return a widget in the running cell that takes spans as they come, None where nobody looks.

    The widget is made by labkit.widgets, which stands above this package, when it is asked for and not before.
    """
    from labkit.widgets import live as _live

    if not _live.is_live():
        return None
    from labkit.widgets import growing as _growing

    return _growing.GrowingTimeline()
