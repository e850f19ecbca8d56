"""What a timeline shows first of all, in a sentence that is computed from it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from labkit.timeline.in_time import lost_ns
from labkit.timeline.metrics import lane_times
from labkit.timeline.staircase import idle_ns, is_pipeline
from labkit.timeline.timeline import Timeline
from labkit.timeline.waiting import Stuck, come_last, same_calls, stuck
from labkit.units import format_percent, format_time
from labkit.words import ranks_in_words

_STILL = 0.4
"""Of the time: who stands still for less works some of it."""
_NOTED = 0.1
"""Of the time: what is less is no finding."""
_ZERO = 0.005
"""Of the time: what is less is 0 % in words, and no waiting."""
_LITTLE = 0.1
"""Of the longest wait: who waits for less is not one of those that wait."""
_ALIKE = 0.02
"""Of the time: who wait for times that lie no further apart wait equally long, in words."""
_FOR_SOME = 0.05
"""Of the time: the same of waiting for the ranks that come last, who make a step slow."""
_WORKS = 0.9
"""Of the time: a rank that is not blocked for so long is what the others wait for."""
_MOST = 0.6
"""Of the time the others stand still, at least, where they wait for those that come last."""
_NONE, _SOME = 0.05, 0.95
"""Of communication: what is hidden of it is nothing, or all."""


def finding(timeline: Timeline) -> str:
    """Return what matters most in a run, in a sentence; "" where nothing is sure.

    First who waits when it is over, then a pipeline's bubble, who holds up the others, how long ranks stand still, what
    communication costs.
    A rank is named only where the same program names it again with other noise: tests/widgets/known_runs.py holds runs
    of known kind to that. Of a run that an exercise asks about no rank is named: that is for the learner to find.
    """
    if timeline.num_ranks < 2 or not timeline.makespan_ns:
        return ""
    waits = stuck(timeline)
    if waits is not None:
        return _stuck(waits, timeline.num_ranks, is_asked_about=timeline.is_asked_about)
    times = lane_times(timeline)
    still = times.blocked_ns / timeline.makespan_ns
    idle = idle_ns(timeline) / timeline.makespan_ns
    told = (
        ""
        if timeline.is_asked_about
        else _bubble(timeline, idle) or _last(timeline, still) or _alone(timeline, idle, still)
    )
    if told:
        return told
    if still.mean() >= _NOTED:
        return _standing_still(still)
    if not times.compute_ns.any():
        return ""
    return _communicating(times.communication_ns / timeline.makespan_ns, times.hidden_ns / timeline.makespan_ns)


def _stuck(waits: Stuck, num_ranks: int, *, is_asked_about: bool) -> str:
    """Return who waits when a run is over: because calls differ, for each other, which is a deadlock, or for whom."""
    if is_asked_about:
        return f"{len(waits.ranks)} of {num_ranks} ranks still wait at the end"
    if waits.differ:
        (rank, kind), (other, another) = waits.differ
        return f"Rank {rank} calls {kind} where rank {other} calls {another}"
    if len(waits.circle) > 1:
        others = [rank for rank in waits.ranks if rank not in waits.circle]
        rest = f", {ranks_in_words(others) if len(others) == 1 else 'the others'} for them" if others else ""
        return f"Deadlock: {ranks_in_words(waits.circle)} wait for each other{rest}"
    wait = "wait" if len(waits.ranks) > 1 else "waits"
    whom = f" for {ranks_in_words(waits.for_whom)}" if waits.for_whom else ""
    return f"{_upper(ranks_in_words(waits.ranks))} still {wait}{whom} at the end"


def _last(timeline: Timeline, still: npt.NDArray[np.float64]) -> str:
    """Return which ranks come last to what all call, and what that costs; "" where it is little.

    Of a step, where it is known how long it would take without them: waits that computing hides cost time, too.
    Else how long the others wait for them.
    """
    if still.mean() < _FOR_SOME / 2:
        return ""
    late = come_last(timeline)
    if late is None:
        return ""
    share = np.delete(late.waited_ns, late.ranks) / timeline.makespan_ns
    if share.mean() < max(_FOR_SOME, _MOST * np.delete(still, late.ranks).mean()):
        return ""
    is_one = len(late.ranks) == 1
    told = f"{_upper(ranks_in_words(late.ranks))} {'comes' if is_one else 'come'} last;"
    lost = lost_ns(timeline, late.ranks)
    if lost and lost[0] >= _FOR_SOME * lost[1]:
        return f"{told} {'it costs' if is_one else 'they cost'} every step {_part(*lost)}"
    others = [rank for rank in range(timeline.num_ranks) if rank not in late.ranks]
    who = "the others wait" if len(others) > 1 else f"{ranks_in_words(others)} waits"
    return f"{told} {who} {format_percent(share.mean())} of the time for {'it' if is_one else 'them'}"


def _part(part_ns: float, whole_ns: float) -> str:
    """Return a part of a time beside all of it, and its share: "210 of 623 µs (34 %)"."""
    part, whole = format_time(part_ns).split(), format_time(whole_ns).split()
    value = part[0] if part[1] == whole[1] else " ".join(part)
    return f"{value} of {' '.join(whole)} ({format_percent(part_ns / whole_ns)})"


def _bubble(timeline: Timeline, idle: npt.NDArray[np.float64]) -> str:
    """Return how long the stages of a pipeline stand idle; "" where it is little, or the ranks are no stages."""
    if idle.mean() < _NOTED or not is_pipeline(timeline):
        return ""
    return f"The pipeline's bubble: stages stand idle {format_percent(float(idle.mean()))} of the time"


def _alone(timeline: Timeline, idle: npt.NDArray[np.float64], still: npt.NDArray[np.float64]) -> str:
    """Return which rank works or moves bytes all the time while the others stand still; "" where none does.

    Where all make the same calls, who is waited for comes last to them, or was late once.
    """
    works = np.flatnonzero(idle <= 1 - _WORKS)
    if len(works) != 1 or len(still) < 3 or same_calls(timeline):
        return ""
    others = np.delete(still, works)
    if others.min() < _STILL:
        return ""
    who = _upper(ranks_in_words(works.tolist()))
    return f"{who} works; the others wait {format_percent(float(others.mean()))} of the time"


def _standing_still(still: npt.NDArray[np.float64]) -> str:
    """Return how many ranks wait and how long they do, on average: the number of the tile under the sentence."""
    waits = still[still >= max(_ZERO, _LITTLE * still.max())]
    number, everybody = len(waits), len(still)
    share = format_percent(float(still.sum()) / number)
    alike = waits.max() - waits.min() < _ALIKE
    verb = "waits" if number == 1 else "wait"
    who = "Every rank waits" if number == everybody else f"{number} of {everybody} ranks {verb}"
    return f"{who}{'' if alike else ', on average'} {share} of the time"


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
