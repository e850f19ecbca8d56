"""What a timeline shows first of all, in a sentence that is computed from it."""

from __future__ import annotations

import numpy as np

from labkit.timeline.metrics import wait_ns
from labkit.timeline.timeline import Timeline
from labkit.units import format_percent
from labkit.words import ranks_in_words

_STILL = 0.4
"""Of the time: what is less is no finding."""
_APART = 0.35
"""Of the others' share: a rank that stands still less than that does what they wait for."""


def finding(timeline: Timeline) -> str:
    """Return who does the work while the others stand still, or how long all do; "" where neither is much."""
    if timeline.num_ranks < 2 or not timeline.makespan_ns:
        return ""
    still = wait_ns(timeline) / timeline.makespan_ns
    least = int(still.argmin())
    others = float(np.delete(still, least).mean())
    if timeline.num_ranks > 2 and others >= _STILL and still[least] <= _APART * np.delete(still, least).min():
        return f"{_upper(ranks_in_words([least]))} works; the others stand still {format_percent(others)} of the time"
    if still.min() >= _STILL:
        return f"Every rank stands still at least {format_percent(still.min())} of the time"
    return ""


def _upper(words: str) -> str:
    return words[0].upper() + words[1:]
