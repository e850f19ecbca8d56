"""What a timeline shows first of all, in a sentence that is computed from it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from labkit.timeline.metrics import lane_times
from labkit.timeline.timeline import Timeline
from labkit.timeline.waiting import waited_for
from labkit.units import format_percent
from labkit.words import ranks_in_words

_STILL = 0.4
"""Of the time: who stands still for less works some of it."""
_NOTED = 0.1
"""Of the time: what is less is no finding."""
_FOR_ONE = 0.05
"""Of the time: the same of waiting for one rank, which is what makes a step slow."""
_APART = 0.35
"""Of the others' share: a rank that stands still less than that does what they wait for."""
_MOST = 0.6
"""Of the time the others stand still, at least, where they wait for one rank."""
_NONE, _SOME = 0.05, 0.95
"""Of communication: what is hidden of it is nothing, or all."""


def finding(timeline: Timeline) -> str:
    """Return who holds up the others, how long ranks stand still, or what communication costs; "" where none is much.

    Of a run that an exercise asks about no rank is named: that is for the learner to find.
    """
    if timeline.num_ranks < 2 or not timeline.makespan_ns:
        return ""
    times = lane_times(timeline)
    still = times.blocked_ns / timeline.makespan_ns
    named = "" if timeline.is_asked_about else _held_up(timeline, still)
    if named:
        return named
    if still.mean() >= _NOTED:
        return _standing_still(still)
    if not times.compute_ns.any():
        return ""
    return _communicating(times.communication_ns / timeline.makespan_ns, times.hidden_ns / timeline.makespan_ns)


def _held_up(timeline: Timeline, still: npt.NDArray[np.float64]) -> str:
    """Return which rank the others stand still for, or "": it works while they do, or comes last to their calls."""
    least = int(still.argmin())
    rest = np.delete(still, least)
    others = float(rest.mean())
    if timeline.num_ranks > 2 and others >= _STILL and still[least] <= _APART * rest.min():
        return f"{_upper(ranks_in_words([least]))} works; the others are blocked {format_percent(others)} of the time"
    if still.mean() < _FOR_ONE:
        return ""
    last, waited_ns = waited_for(timeline)
    share = np.delete(waited_ns, last) / timeline.makespan_ns
    if last < 0 or share.mean() < max(_FOR_ONE, _MOST * np.delete(still, last).mean()):
        return ""
    who = "the others wait" if len(share) > 1 else f"{ranks_in_words([1 - last])} waits"
    return f"{_upper(ranks_in_words([last]))} comes last; {who} {format_percent(share.mean())} of the time for it"


def _standing_still(still: npt.NDArray[np.float64]) -> str:
    who = "Every rank is" if still.min() >= _NOTED else "Ranks are"
    least, most = format_percent(still.min()), format_percent(still.max())
    share = most if least == most else f"{least.removesuffix(' %')} to {most}"
    return f"{who} blocked {share} of the time"


def _communicating(moving: npt.NDArray[np.float64], hidden: npt.NDArray[np.float64]) -> str:
    """Return how much of communication is hidden and how long the rest takes, shares of the time; "" of little."""
    takes, exposed = float(moving.mean()), float((moving - hidden).mean())
    if takes < _NOTED:
        return ""
    if exposed >= (1 - _NONE) * takes:
        return f"Communication takes {format_percent(takes)} of the time, and none of it is hidden"
    if exposed <= (1 - _SOME) * takes:
        return f"Computation hides all communication, {format_percent(takes)} of the time"
    part = format_percent(1 - exposed / takes)
    return f"Computation hides {part} of communication; the rest takes {format_percent(exposed)} of the time"


def _upper(words: str) -> str:
    return words[0].upper() + words[1:]
