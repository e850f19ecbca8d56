"""Two runs on one axis: a prediction beside a measurement, before beside after."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from PIL import Image

from labkit.errors import ConfigError
from labkit.timeline.metrics import lane_times
from labkit.timeline.span import Lane
from labkit.timeline.summary import headline
from labkit.timeline.timeline import Timeline
from labkit.widgets import display as _display
from labkit.widgets.canvas import Canvas, size_on_page
from labkit.widgets.deck_data import metadata
from labkit.widgets.language import CLAIM
from labkit.widgets.layout import window_of
from labkit.widgets.live import is_live
from labkit.widgets.static_timeline import WIDTH, of_few_colours, to_png
from labkit.widgets.timeline_columns import pack
from labkit.widgets.timeline_view import TimelineView, check_ranks

_HEAD = 34
"""Pixels of the claim above two pictures."""
_SAME = 0.005
"""Lengths that differ by a smaller share are the same in words."""
_MOST = 0.5
"""Of the difference in length: what is more of it is the cause."""
_AGAINST = 0.25
"""Of the same: where more goes the other way, no one thing is."""
_ALONE = 2
"""Times as long as the mean rank moves bytes who is the only way for them."""
_CAUSES = (
    ("ranks compute less", "ranks compute longer"),
    ("less communication is exposed", "more communication is exposed"),
    ("ranks wait less", "ranks wait longer"),
)
"""What computing, exposed communication and waiting are called where they make a run shorter, and longer."""


@dataclass(frozen=True, repr=False)
class Comparison:
    """Two timelines that a notebook shows on one axis; made by labkit.compare.

    Attributes:
        timelines: The two.
        names: What they are called.
        how: "below" puts the second under the first, "outline" draws it dashed over the first.
        ranks: Which ranks are shown, None for all or 64 evenly spaced ones.
    """

    timelines: tuple[Timeline, Timeline]
    names: tuple[str, str]
    how: Literal["below", "outline"]
    ranks: Sequence[int] | None

    def explore(self) -> TimelineView:
        """Return the comparison as a widget, with offset, outline and the difference of all numbers."""
        view = self._view()
        view.add_paths(self.timelines, self.ranks)
        return view

    def to_png(self) -> bytes:
        """Return both pictures, the second under the first, with one scale of time."""
        span = max(window_of(timeline)[1] for timeline in self.timelines)
        parts = [
            Image.open(io.BytesIO(to_png(timeline, f"{name}: {headline(timeline)}", lasting_ns=span))).convert("RGBA")
            for timeline, name in zip(self.timelines, self.names, strict=True)
        ]
        widest = max(part.width for part in parts)  # one of them may have a pixel for one, the other two
        parts = [part.resize((widest, part.height * widest // part.width), Image.Resampling.NEAREST) for part in parts]
        head = Canvas(WIDTH, _HEAD if self._claim() else 0, widest // WIDTH)
        claim = self._claim()
        head.words(12, 10, claim[:1].upper() + claim[1:], CLAIM, bold=True, down="top")
        parts = [head.finished(), *parts] if self._claim() else parts
        both = Image.new("RGBA", (widest, sum(part.height for part in parts)))
        top = 0
        for part in parts:
            both.paste(part, (0, top))
            top += part.height
        return of_few_colours(both)

    def __repr__(self) -> str:
        lines = [f"{name}: {timeline.summary()}" for name, timeline in zip(self.names, self.timelines, strict=True)]
        if claim := self._claim():
            lines.append(f"{claim}.")
        return "\n".join(lines)

    def _claim(self) -> str:
        """Return how long the second takes beside the first and why, in words; "" where one of them took no time."""
        first, second = (timeline.makespan_ns for timeline in self.timelines)
        if not first or not second:
            return ""
        name, other = _quoted(self.names)
        if abs(second / first - 1) < _SAME:
            return f"{other} takes as long as {name}"
        if second < first:
            return f"{other} is {_times(first / second)} times faster than {name}{self._cause()}"
        return f"{other} takes {_times(second / first)} times as long as {name}{self._cause()}"

    def _cause(self) -> str:
        """Return what makes most of the difference in length, as the widget says it; "" where no one thing does."""
        queue = _queue(*self.timelines)
        if queue:
            return queue
        before, after = (_mean_times(timeline) for timeline in self.timelines)
        change = self.timelines[1].makespan_ns - self.timelines[0].makespan_ns
        shares = (after - before) / change
        against = -np.append(shares, 1 - shares.sum()).clip(max=0).sum()  # the last is what ranks do besides
        most = int(shares.argmax())
        is_one = shares[most] > _MOST and against <= _AGAINST
        return f", mostly because {_CAUSES[most][change > 0]}" if is_one else ""

    def _view(self) -> TimelineView:
        pairs = zip(self.timelines, self.names, strict=True)
        packed = [pack(timeline, name=name, ranks=self.ranks, is_beside=True) for timeline, name in pairs]
        packed[0]["overlay"] = self.how == "outline"
        return TimelineView(packed, f"{self.names[0]} beside {self.names[1]}, to play with")

    def _ipython_display_(self) -> None:
        if not is_live():
            raise NotImplementedError  # IPython then asks for _repr_mimebundle_
        _display.show(repr(self), self._view, self.to_png, lambda view: view.add_paths(self.timelines, self.ranks))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        """Return the static picture and the sentences, for any notebook; and what a deck needs, where it is built."""
        shown: dict[str, Any] = {"image/png": self.to_png(), "text/plain": repr(self)}
        kept = metadata(self.timelines, names=self.names, ranks=self.ranks, overlay=self.how == "outline")
        return shown, size_on_page(shown["image/png"], WIDTH) | kept


def _queue(first: Timeline, second: Timeline) -> str:
    """Return at which rank bytes queue in the longer run alone, if that makes most of the difference; else ""."""
    shorter, longer = sorted((first, second), key=lambda timeline: timeline.makespan_ns)
    few, many = (lane_times(timeline).communication_ns for timeline in (shorter, longer))
    is_narrow = many.max() >= _ALONE * many.mean() and few.max() < _ALONE * few.mean()
    if not is_narrow or many.max() - few.max() <= _MOST * (longer.makespan_ns - shorter.makespan_ns):
        return ""
    verb = "no longer queue" if shorter is second else "queue"
    return f", mostly because bytes {verb} at rank {int(many.argmax())}"


def _quoted(names: tuple[str, str]) -> tuple[str, str]:
    """Return names within a sentence: where one has several words, both stand in quotes."""
    if not any(" " in name for name in names):
        return names
    first, second = (f"\N{LEFT DOUBLE QUOTATION MARK}{name}\N{RIGHT DOUBLE QUOTATION MARK}" for name in names)
    return first, second


def _mean_times(timeline: Timeline) -> npt.NDArray[np.float64]:
    """Return how long ranks compute, move bytes that nothing hides, and stand still: means, ns.

    Of real processes it is not recorded when they compute: then the first two are 0.
    """
    times = lane_times(timeline)
    is_known = bool((timeline.lane == Lane.COMPUTE).any())
    exposed = times.either_ns - times.compute_ns
    return np.array([is_known * times.compute_ns.mean(), is_known * exposed.mean(), times.blocked_ns.mean()])


def _times(ratio: float) -> str:
    """Return a ratio as it is said: 3.5, or 1.08 where a tenth would hide it."""
    return f"{float(f'{ratio:.2g}' if ratio >= 1.95 else f'{ratio:.3g}'):g}"


def compare(
    a: Any,
    b: Any,
    *,
    names: tuple[str, str] = ("A", "B"),
    how: Literal["below", "outline"] = "below",
    ranks: Sequence[int] | None = None,
) -> Comparison:
    """Return two timelines on one axis, with their numbers side by side and their difference.

    Args:
        a: A timeline, or the run that has it.
        b: Another one.
        names: What to call them.
        how: "below" puts the second under the first; "outline" draws it dashed over the first, as a prediction over
            what was measured. The page can change it.
        ranks: Which ranks to show; None shows all, or 64 evenly spaced ones.

    Raises:
        ConfigError: If one is not a timeline, how is neither word, or a rank is not there.
    """
    if how not in ("below", "outline"):
        raise ConfigError(f'how={how!r} is not known; use "below" or "outline".')
    first, second = _timeline_of(a), _timeline_of(b)
    for timeline in (first, second):
        check_ranks(timeline, ranks)
    return Comparison((first, second), names, how, ranks)


def _timeline_of(given: Any) -> Timeline:
    timeline = getattr(given, "timeline", given)
    if not isinstance(timeline, Timeline):
        raise ConfigError(f"labkit.compare needs two timelines or runs, and got a {type(given).__name__}.")
    return timeline
