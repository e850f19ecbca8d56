"""In which phase of a training step each operator ran: what the record says, and the named region around it.

The table "phase" (span, phase) has the operators of which the world itself knows: those of a backward pass and of an
optimizer's step. A region called forward (or F3, as pipelines say), backward or optimizer tells it of the others.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from labkit.timeline.distinct import coded
from labkit.timeline.grouping import NO_ROWS, by_rank_and_lane
from labkit.timeline.intervals import owned_segments
from labkit.timeline.span import Lane

if TYPE_CHECKING:
    from labkit.timeline.timeline import Timeline

NONE, FORWARD, BACKWARD, BACKWARD_WEIGHT, OPTIMIZER = "", "forward", "backward", "backward weight", "optimizer"
PHASES = (NONE, FORWARD, BACKWARD, BACKWARD_WEIGHT, OPTIMIZER)

_NAMES = (
    (BACKWARD_WEIGHT, re.compile(r"backward[ _]weight|b?w\d*(\.\d+)?$")),
    (BACKWARD, re.compile(r"backward|[bi]\d*(\.\d+)?$")),
    (FORWARD, re.compile(r"forward|f\d*(\.\d+)?$")),
    (OPTIMIZER, re.compile(r"optimi[sz]er")),
)


def phase_named(*words: str) -> str:
    """Return the phase that a region's kind or name stands for, "" for none: "F3" is forward."""
    for word in words:
        for phase, pattern in _NAMES:
            if pattern.match(word.lower()):
                return phase
    return NONE


def phase_codes(timeline: Timeline) -> npt.NDArray[np.int8]:
    """Return for every row of the compute lane the index of its phase in PHASES, 0 for none and for all other rows."""
    codes = np.zeros(len(timeline), dtype=np.int8)
    kinds, kind = timeline.kind_codes
    computes = timeline.lane == Lane.COMPUTE
    # What a hand-made timeline calls itself; operators have names of their own, which say nothing of it.
    for number, word in enumerate(kinds):
        mine = np.flatnonzero(computes & (kind == number)) if word not in _OPERATORS else NO_ROWS
        if len(mine):
            names, name = coded(timeline.name[mine]) if word == "span" else ([word], np.zeros(len(mine), np.int32))
            codes[mine] = np.array([PHASES.index(phase_named(each)) for each in names], dtype=np.int8)[name]
    table = timeline.tables.get("phase")
    if table is not None and len(table["span"]):
        words, word_of = coded(table["phase"])
        codes[table["span"]] = np.array([PHASES.index(each) for each in words], dtype=np.int8)[word_of]
    if "kernel" not in kinds:  # of a GPU's kernels it is not the time they run at that tells who launched them
        _inherit(timeline, codes)
    return codes


_OPERATORS = ("operator", "op", "kernel", "gpu_memcpy", "gpu_memset")


def _inherit(timeline: Timeline, codes: npt.NDArray[np.int8]) -> None:
    """Give operators without a phase that of the innermost region around their begin which names one."""
    regions = np.flatnonzero(timeline.lane == Lane.REGION)
    named = [PHASES.index(phase_named(*_words(timeline, row))) for row in regions.tolist()]
    if not any(named):
        return
    code = np.zeros(len(timeline), dtype=np.int64)
    code[regions] = named
    groups = by_rank_and_lane(timeline)
    for rank in range(timeline.num_ranks):
        around = groups.get((rank, Lane.REGION), NO_ROWS)
        around = around[code[around] > 0]
        inside = groups.get((rank, Lane.COMPUTE), NO_ROWS)
        if not len(around) or not len(inside):
            continue
        begin, end, phase = owned_segments(timeline.start_ns[around], timeline.end_ns[around], code[around])
        place = np.searchsorted(begin, timeline.start_ns[inside], side="right") - 1
        held = (place >= 0) & (timeline.start_ns[inside] < end[place])
        found = np.where(held, phase[place], 0)
        weight = (codes[inside] == PHASES.index(BACKWARD)) & (found == PHASES.index(BACKWARD_WEIGHT))
        codes[inside] = np.where((codes[inside] == 0) | weight, found, codes[inside])


def _words(timeline: Timeline, row: int) -> tuple[str, ...]:
    kind = str(timeline.kind[row])
    return (str(timeline.name[row]),) if kind == "span" else (kind, str(timeline.name[row]))
