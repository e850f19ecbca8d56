"""The timeline as a widget: zoom, hover, numbers of what is in view, two runs on one axis.

Everything a reader does in it is done by the page, so it works while a cell runs and after the kernel has ended.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import anywidget
import traitlets

from labkit.errors import ConfigError
from labkit.timeline.timeline import Timeline
from labkit.widgets import programs
from labkit.widgets.timeline_columns import pack, pack_path


def program() -> str:
    """Return the widget's program: a module that asks for nothing else; in a page it is called ``labkit``."""
    return programs.sent("timeline.js") + "export default labkit;"


def style() -> str:
    """Return the widget's style sheet."""
    return programs.sent("timeline.css")


class TimelineView(anywidget.AnyWidget):
    """One or two timelines that a notebook shows and a reader plays with.

    Attributes:
        runs: What the page draws; see labkit.widgets.timeline_columns.
        paths: The critical path of each run, once they are known.
        focus: The event to open at, by its place in the page's order; -1 for none.
        note: Said of that event beside what it is.
    """

    _esm = ""
    _css = ""
    runs = traitlets.List(traitlets.Dict()).tag(sync=True)
    paths = traitlets.List(traitlets.Dict()).tag(sync=True)
    focus = traitlets.Int(-1).tag(sync=True)
    note = traitlets.Unicode("").tag(sync=True)

    def __init__(self, runs: Sequence[dict[str, Any]], sentence: str, focus: int = -1, note: str = "") -> None:
        super().__init__(_esm=program(), _css=style(), runs=list(runs), focus=focus, note=note)
        self._sentence = sentence

    def add(self, spans: Timeline, sequence: int) -> None:
        """Send spans that were recorded since, times from the same origin, as message number sequence, from 1.

        Messages that come before the page listens are lost: ``runs`` must hold the whole state now and then, with the
        number of the last message in it as "sequence".
        """
        packed = pack(spans, origin_ns=0)
        del packed["focus"]
        columns = packed.pop("columns")
        self.send({**packed, "sequence": sequence, "sent": time.time()}, [columns])

    def add_paths(self, timelines: Sequence[Timeline], ranks: Sequence[int] | None = None) -> None:
        """Send the critical paths after the picture, which need not wait for them."""
        self.paths = [pack_path(timeline, ranks) for timeline in timelines]

    def __repr__(self) -> str:
        return self._sentence


def view_of(timeline: Timeline, *, ranks: Sequence[int] | None = None, row: int = -1, note: str = "") -> TimelineView:
    """Return the widget of one timeline.

    Args:
        timeline: What was recorded.
        ranks: Which ranks to show; None shows all, or 64 evenly spaced ones.
        row: A row of the timeline to open at, -1 for the whole.
        note: What to say of that row beside what it is.

    Raises:
        ConfigError: If a rank or the row is not there.
    """
    check_ranks(timeline, ranks)
    if not -1 <= row < len(timeline):
        raise ConfigError(f"The timeline has no row {row}; its rows are 0 to {len(timeline) - 1}.")
    packed = pack(timeline, ranks=ranks, focus=row)
    focus = packed.pop("focus")
    return TimelineView([packed], f"{timeline!r}, to play with", focus, note)


def explored(timeline: Timeline, ranks: Sequence[int] | None, row: int) -> TimelineView:
    """Return the widget of one timeline with its critical path (see Timeline.explore)."""
    view = view_of(timeline, ranks=ranks, row=row)
    view.add_paths([timeline], ranks)
    return view


def check_ranks(timeline: Timeline, ranks: Sequence[int] | None) -> None:
    """Raise ConfigError if a rank is not in the timeline."""
    wrong = [rank for rank in ranks or () if not 0 <= rank < timeline.num_ranks]
    if wrong:
        raise ConfigError(f"The timeline has no rank {wrong[0]}; its ranks are 0 to {timeline.num_ranks - 1}.")
