"""Colours of what a span is, told apart with any colour vision and beside it by a second sign: hatch or letter.

Smallest distance between any two over normal, deutan, protan and tritan vision: 16.2 (CAM02-UCS). The two pale colours
have about 2.2:1 on white, so legend patches carry a dark outline.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from labkit.timeline.messages import REMOTE_CALLS
from labkit.timeline.phases import BACKWARD, BACKWARD_WEIGHT, FORWARD, NONE, OPTIMIZER, PHASES, phase_codes, phase_named
from labkit.timeline.span import Lane
from labkit.timeline.timeline import Timeline


@dataclass(frozen=True)
class Category:
    """One kind of bar.

    Attributes:
        name: The word in the legend.
        colour: ``#rrggbb``.
        hatched: Whether it is drawn in stripes.
    """

    name: str
    colour: str
    hatched: bool = False


CATEGORIES = (
    Category("compute", "#0072B2"),
    Category("backward", "#DDAA33"),
    Category("backward weight", "#D55E00"),
    Category("collective", "#332288"),
    Category("send, recv", "#000000"),
    Category("other", "#56B4E9"),
    Category("blocked", "#767676", hatched=True),
)
BLOCKED = 6
"""The category of time in which a rank stood still and nothing moved; no event has it by itself."""
DARK_COLOURS = ("#0061E4", "#DDAA33", "#C03400", "#9694FF", "#FFFFFF", "#AFD8FF", "#8A8A8A")
"""The same categories on a dark ground (#111111): smallest distance 18.4, each with a contrast of 3:1 or more."""
_POINT_TO_POINT = ("send", "recv", "isend", "irecv", "send_recv", *REMOTE_CALLS)


_OF_PHASE = {NONE: 0, FORWARD: 0, BACKWARD: 1, BACKWARD_WEIGHT: 2, OPTIMIZER: 5}


@cache
def category_of(lane: int, kind: str, name: str) -> int:
    """Return the index in CATEGORIES of a span in this lane, of this kind and name."""
    if kind == "wait":
        return BLOCKED
    if lane == Lane.COMMUNICATION:
        return 4 if kind in _POINT_TO_POINT else 3
    if lane == Lane.COMPUTE:
        return _OF_PHASE[phase_named(name if kind == "span" else kind)]
    return 5


def categories_of(timeline: Timeline) -> npt.NDArray[np.int64]:
    """Return the index in CATEGORIES of every span."""
    kinds, kind = timeline.kind_codes
    of = np.array([[category_of(int(lane), each, "") for each in kinds] for lane in Lane], dtype=np.int64)
    found: npt.NDArray[np.int64] = of.ravel().take(timeline.lane.astype(np.int32) * len(kinds) + kind)
    computes = np.flatnonzero(timeline.lane == Lane.COMPUTE)
    phases = phase_codes(timeline)
    found[computes] = np.array([_OF_PHASE[phase] for phase in PHASES])[phases[computes]]
    return found
