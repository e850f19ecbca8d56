"""What kind of thing a span is, and how its bar is painted: the colours and patterns are the visual language's."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from labkit.timeline.cached_answers import cached_with_timeline
from labkit.timeline.messages import RECEIVES, REMOTE_CALLS, SERVED
from labkit.timeline.phases import BACKWARD, BACKWARD_WEIGHT, FORWARD, NONE, OPTIMIZER, PHASES, phase_codes, phase_named
from labkit.timeline.span import Lane
from labkit.timeline.timeline import Timeline
from labkit.widgets.language import DARK, LIGHT


@dataclass(frozen=True)
class Category:
    """One kind of bar.

    Attributes:
        name: The word in the legend.
        colour: ``#rrggbb`` on a white ground.
        dark: The same on a dark ground.
        hatched: Whether it is drawn in stripes.
        dotted: Whether dots lie on it.
    """

    name: str
    colour: str
    dark: str
    hatched: bool = False
    dotted: bool = False


def _category(name: str, meaning: str, *, hatched: bool = False, dotted: bool = False) -> Category:
    return Category(name, LIGHT[meaning], DARK[meaning], hatched, dotted)


CATEGORIES = (
    _category("compute", "forward"),
    _category("backward", "backward"),
    _category("backward weight", "backward", dotted=True),
    _category("collective", "collective"),
    _category("send", "send"),
    _category("optimizer", "optimizer"),
    _category("blocked", "blocked", hatched=True),
    _category("receive", "receive"),
    _category("host", "host"),
)
_BACKWARD_WEIGHT, _COLLECTIVE, SEND, _OPTIMIZER = 2, 3, 4, 5
BLOCKED = 6
"""The category of time in which a rank stood still and nothing moved; no event has it by itself."""
RECEIVE, _HOST = 7, 8
IN_LEGEND = (0, 1, 2, _OPTIMIZER, _HOST, SEND, RECEIVE, _COLLECTIVE, BLOCKED)
"""Categories as they are read: what computes, what sends and receives, what stands still; as on the page."""
HATCH = 6, 1
"""Pixels from one stripe of a hatch to the next, and of a stripe."""
DOTS = 5, 2
"""Pixels from one dot to the next, and of a dot."""
PALE = 0.1
"""How much of its colour lies between the stripes of a hatch, and in a dot."""
_RECEIVING = (*RECEIVES, SERVED)
_POINT_TO_POINT = ("send", "recv", "isend", "irecv", "send_recv", *REMOTE_CALLS)


_OF_PHASE = {NONE: 0, FORWARD: 0, BACKWARD: 1, BACKWARD_WEIGHT: _BACKWARD_WEIGHT, OPTIMIZER: _OPTIMIZER}


@cache
def category_of(lane: int, kind: str, name: str) -> int:
    """Return the index in CATEGORIES of a span in this lane, of this kind and name."""
    if kind == "wait":
        return BLOCKED
    if lane == Lane.COMMUNICATION:
        if kind in _RECEIVING:
            return RECEIVE
        return SEND if kind in _POINT_TO_POINT else _COLLECTIVE
    if lane == Lane.COMPUTE:
        return _OF_PHASE[phase_named(name if kind == "span" else kind)]
    return _HOST


@cached_with_timeline
def categories_of(timeline: Timeline) -> npt.NDArray[np.int64]:
    """Return the index in CATEGORIES of every span."""
    kinds, kind = timeline.kind_codes
    of = np.array([[category_of(int(lane), each, "") for each in kinds] for lane in Lane], dtype=np.int64)
    found: npt.NDArray[np.int64] = of.ravel().take(timeline.lane.astype(np.int32) * len(kinds) + kind)
    computes = np.flatnonzero(timeline.lane == Lane.COMPUTE)
    phases = phase_codes(timeline)
    found[computes] = np.array([_OF_PHASE[phase] for phase in PHASES])[phases[computes]]
    return found
