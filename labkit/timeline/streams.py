"""Which stream of its device each span ran on, and what it waited for there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from labkit.timeline.cached_answers import cached_with_timeline
from labkit.timeline.messages import of_kind
from labkit.timeline.span import Lane

if TYPE_CHECKING:
    from labkit.timeline.timeline import Timeline

DEFAULT = "default stream"
_ONLY_COPIES = "copies, {}"


def has_streams(timeline: Timeline) -> bool:
    """Return whether devices ran anything beside their default streams, as far as it was recorded."""
    table = timeline.tables.get("stream")
    return table is not None and bool(len(table["span"]))


@cached_with_timeline
def streams(timeline: Timeline) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Return the names of the streams, and the number of its own for each span: -1 for what no device ran.

    The default stream comes first, then those of the program, then those of process groups and messages, each as they
    were first used. A stream that only copies between host and device says so.
    """
    number = np.full(len(timeline), -1, dtype=np.int64)
    if not has_streams(timeline):
        return [], number
    copies = of_kind(timeline, "copy")
    on_device = (timeline.lane == Lane.COMPUTE) | (timeline.lane == Lane.COMMUNICATION) | copies
    table = timeline.tables["stream"]
    own = dict.fromkeys(table["stream"][np.argsort(timeline.lane[table["span"]] == Lane.COMMUNICATION, kind="stable")])
    names = ["", *map(str, own)]
    number[on_device] = 0
    found = np.searchsorted(sorted(names), table["stream"])
    number[table["span"]] = np.array([names.index(name) for name in sorted(names)])[found]
    number[~on_device] = -1
    only = np.ones(len(names), dtype=bool)
    only[number[on_device & ~copies]] = False
    words = [_said(name) for name in names]
    return [_ONLY_COPIES.format(word) if alone else word for word, alone in zip(words, only, strict=True)], number


def _said(name: str) -> str:
    """Return what a stream is called in a picture: "stream 2", "default group", "group 0, 4"."""
    return name.removeprefix("the ").replace("group of ranks", "group") or DEFAULT
