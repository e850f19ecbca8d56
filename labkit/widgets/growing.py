"""The timeline of a job that is still running, as a widget that grows.

Every message carries a number and what was recorded since the last; the whole state follows from time to time, for a
page that began to listen late has missed what came before.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

import numpy as np
from IPython.display import display

from labkit.timeline.columns import COLUMNS
from labkit.timeline.messages import RECEIVES, SENDS
from labkit.timeline.timeline import Timeline
from labkit.widgets.canvas import size_on_page
from labkit.widgets.display import put_out
from labkit.widgets.finding import finding
from labkit.widgets.static_timeline import WIDTH, to_png
from labkit.widgets.timeline_columns import pack
from labkit.widgets.timeline_view import TimelineView

_WAITING = "Waiting for the first span."
_FEW = 3000
"""Up to so many spans all of them are sent each time, with when each rank stood still."""
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
        if sum(map(len, self._parts)) <= _FEW:
            self.view.runs = [self._whole()]
            return
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
        timeline = _met(_joined(self._parts)) if timeline is None else timeline
        packed = pack(timeline)
        del packed["focus"]
        packed["title"] += ", stopped" if stopped else ""
        self.view.runs = [packed]
        png = to_png(timeline)
        shown = {"image/png": png, "text/plain": timeline.summary()}
        self._place.update(shown, raw=True, metadata=size_on_page(png, WIDTH))
        self.view.add_paths([timeline])

    def _whole(self) -> dict[str, Any]:
        timeline = _met(_joined(self._parts))
        packed = pack(timeline, origin_ns=0, has_met=True)
        del packed["focus"]
        says = {} if self._parts else {"says": _WAITING}
        title = ": ".join(filter(None, ("running", finding(timeline))))
        return packed | {"sequence": self._sequence, "title": title} | says


def _joined(parts: list[Timeline]) -> Timeline:
    if not parts:
        return Timeline()
    columns: dict[str, Any] = {key: np.concatenate([getattr(part, key) for part in parts]) for key in COLUMNS}
    tables = {name: table for name in ("source", "call") if (table := _joined_table(parts, name))}
    return Timeline(**columns, tables=tables, num_ranks=max(part.num_ranks for part in parts))


def _joined_table(parts: list[Timeline], name: str) -> dict[str, Any]:
    """Return the parts' tables of this name as one, its rows those of the joined timeline."""
    before, found = 0, []
    for part in parts:
        if table := part.tables.get(name):
            found.append({**table, "span": table["span"] + before})
        before += len(part)
    return {key: np.concatenate([table[key] for table in found]) for key in found[0]} if found else {}


def _met(timeline: Timeline) -> Timeline:
    """Return the timeline with its messages matched so far: the k-th sent with the k-th received of the same kind."""
    calls = timeline.tables.get("call")
    if calls is None or not len(calls["span"]):
        return timeline
    flow = np.full(len(timeline), -1, dtype=np.int64)
    ends: dict[tuple[Any, ...], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    order = np.argsort(timeline.start_ns[calls["span"]], kind="stable")
    columns = (calls[key][order].tolist() for key in ("span", "tag", "group"))
    for row, tag, group in zip(*columns, strict=True):
        rank, peer, kind = int(timeline.rank[row]), int(timeline.peer[row]), timeline.kind[row]
        if kind in SENDS:
            ends[rank, peer, tag, group][0].append(row)
        elif kind in RECEIVES:
            ends[peer, rank, tag, group][1].append(row)
    pairs = [pair for sent, received in ends.values() for pair in zip(sent, received, strict=False)]
    for number, (send, receive) in enumerate(pairs):
        flow[send] = flow[receive] = number
    given = {key: getattr(timeline, key) for key in COLUMNS} | {"flow": flow}
    return Timeline(**given, tables=timeline.tables, num_ranks=timeline.num_ranks)
