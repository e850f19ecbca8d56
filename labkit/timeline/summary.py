"""A timeline in one sentence, which is also what a screen reader says of its picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from labkit.timeline import memory, metrics
from labkit.timeline.messages import RECEIVES, REMOTE_CALLS, SENDS
from labkit.timeline.span import Lane
from labkit.units import format_bytes, format_time

if TYPE_CHECKING:
    from labkit.timeline.timeline import Timeline


def extent(timeline: Timeline) -> str:
    """Return how many ranks and how long: "8 ranks, 1.92 ms", or "8 ranks, nothing recorded"."""
    length = format_time(timeline.makespan_ns) if len(timeline) else "nothing recorded"
    return f"{_count(timeline.num_ranks, 'rank')}, {length}"


def summary(timeline: Timeline) -> str:
    """Return a sentence with ranks, duration, messages, collectives, remote calls, busy share, overlap; then problems.

    Messages are counted where they are sent, collectives once for each rank that calls one, remote calls at the caller.
    """
    parts = [extent(timeline)]
    if not len(timeline):
        return f"{parts[0]}."
    kinds, kind = timeline.kind_codes
    call = (timeline.lane == Lane.COMMUNICATION) & (np.array(kinds) != "span")[kind]
    sends, receives = np.isin(kinds, SENDS)[kind] & call, np.isin(kinds, RECEIVES)[kind] & call
    if sends.any():
        size = format_bytes(int(timeline.bytes[sends].sum()))
        parts.append(f"{_count(int(sends.sum()), 'message')} with {size} in all")
    remote = np.isin(kinds, REMOTE_CALLS)[kind] & call
    calls = int((call & ~sends & ~receives & ~remote).sum())
    if calls:
        parts.append(f"{_count(calls, 'call')} of collectives")
    if remote.any():
        size = format_bytes(int(timeline.bytes[remote].sum()))
        parts.append(f"{_count(int(remote.sum()), 'remote call')} with {size} in all")
    times = metrics.lane_times(timeline)
    parts.append(f"ranks busy {_percent_range(times.either_ns / max(timeline.makespan_ns, 1))} of the time")
    if times.communication_ns.any() and times.compute_ns.any():
        hidden = times.hidden_ns.sum() / times.communication_ns.sum()
        parts.append(f"{hidden:.0%} of communication hidden under computation".replace("%", " %"))
    if memory.has_memory(timeline):
        peaks = timeline.tables["memory_peak"]["bytes"]
        if peaks.any():
            parts.append(f"{_bytes_range(peaks)} of memory at most")
    lines = [", ".join(parts) + "."]
    lines += [problem.text for problem in timeline.problems[:3]]
    if len(timeline.problems) > 3:
        lines.append(f"... and {_count(len(timeline.problems) - 3, 'more problem')}.")
    return "\n".join(lines)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _bytes_range(sizes: npt.NDArray[np.int64]) -> str:
    low, high = format_bytes(int(sizes.min())), format_bytes(int(sizes.max()))
    return low if low == high else f"{low} to {high}"


def _percent_range(shares: npt.NDArray[np.float64]) -> str:
    low, high = round(100 * float(shares.min())), round(100 * float(shares.max()))
    return f"{low} %" if low == high else f"{low} to {high} %"
