"""The timeline of a job that is still running, as a widget that grows.

Every message carries a number and what was recorded since the last; the whole state follows from time to time, for a
page that began to listen late has missed what came before.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from IPython.display import display

from labkit.timeline.columns import COLUMNS
from labkit.timeline.timeline import Timeline
from labkit.widgets.display import put_out
from labkit.widgets.static_timeline import to_png
from labkit.widgets.timeline_columns import pack
from labkit.widgets.timeline_view import TimelineView

_WAITING = "Waiting for the first span."
_FIRST_WHOLE_S = 1.0
"""After this the whole state is sent, then each time after twice as long: what is lost is lost at the beginning."""


class GrowingTimeline:
    """A widget in the running cell, to which spans are added while the job runs.

    Attributes:
        view: The widget.
    """

    def __init__(self) -> None:

        self._place: Any = display({"text/plain": _WAITING}, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        self._parts: list[Timeline] = []
        self._sequence = 0
        self._whole_after = _FIRST_WHOLE_S
        self._next_whole = time.monotonic() + self._whole_after
        self.view = TimelineView([self._whole()], "A timeline as it grew, to play with")
        put_out(self.view)

    def add(self, spans: Timeline) -> None:
        """Show these spans, too; their times count from the same origin as those before."""
        if not len(spans):
            return
        self._sequence += 1
        self._parts.append(spans)
        self.view.add(spans, self._sequence)
        if time.monotonic() > self._next_whole:
            self.view.runs = [self._whole()]
            self._whole_after *= 2
            self._next_whole = time.monotonic() + self._whole_after

    def finish(self, timeline: Timeline | None) -> None:
        """Show the whole record with messages and critical path, and leave a picture for pages without a kernel.

        Args:
            timeline: What came of the run; None where it was broken off, or nothing could be recorded: what was shown
                until then stays.
        """
        stopped = timeline is None
        timeline = _joined(self._parts) if timeline is None else timeline
        packed = pack(timeline)
        del packed["focus"]
        packed["title"] += ", stopped" if stopped else ""
        self.view.runs = [packed]
        self._place.update({"image/png": to_png(timeline), "text/plain": timeline.summary()}, raw=True)
        self.view.add_paths([timeline])

    def _whole(self) -> dict[str, Any]:
        packed = pack(_joined(self._parts), origin_ns=0)
        del packed["focus"]
        says = {} if self._parts else {"says": _WAITING}
        return packed | {"sequence": self._sequence, "title": "running"} | says


def _joined(parts: list[Timeline]) -> Timeline:
    if not parts:
        return Timeline()
    columns: dict[str, Any] = {key: np.concatenate([getattr(part, key) for part in parts]) for key in COLUMNS}
    span = np.concatenate(
        [
            part.tables["source"]["span"] + sum(map(len, parts[:number]))
            for number, part in enumerate(parts)
            if "source" in part.tables
        ]
        or [np.empty(0, dtype=np.int64)]
    )
    line = np.concatenate([p.tables["source"]["line"] for p in parts if "source" in p.tables] or [np.empty(0, np.str_)])
    tables = {"source": {"span": span, "line": line}}
    return Timeline(**columns, tables=tables, num_ranks=max(part.num_ranks for part in parts))
