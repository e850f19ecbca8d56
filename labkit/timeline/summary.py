"""A timeline in one sentence, which is also what a screen reader says of its picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from labkit.timeline import memory, metrics
from labkit.timeline.messages import RECEIVES, REMOTE_CALLS, SENDS
from labkit.timeline.span import Lane
from labkit.units import format_bytes, format_percent, format_time

if TYPE_CHECKING:
    from labkit.timeline.timeline import Timeline


def extent(timeline: Timeline) -> str:
    """Return how many ranks and how long: "8 ranks, 1.92 ms", or "8 ranks, nothing recorded"."""
    length = format_time(timeline.makespan_ns) if len(timeline) else "nothing recorded"
    num_recorded = int(recorded(timeline).sum())
    ranks = _count(timeline.num_ranks, "rank")
    return f"{ranks if num_recorded == timeline.num_ranks else f'{num_recorded} of {ranks} recorded'}, {length}"


def recorded(timeline: Timeline) -> npt.NDArray[np.bool_]:
    """Return for each rank whether there is a record of it, shape (num_ranks,): one without is absent, and not idle."""
    clocks = timeline.tables.get("clock")
    if clocks is None:
        return np.ones(timeline.num_ranks, dtype=np.bool_)
    return np.isin(np.arange(timeline.num_ranks), clocks["rank"])


def headline(timeline: Timeline) -> str:
    """Return how many ranks, how long, and how much of it they stood still: "8 ranks, 788 µs, blocked 62 %"."""
    if not len(timeline):
        return extent(timeline)
    blocked_ns = metrics.wait_ns(timeline)
    if not blocked_ns.any() and not (timeline.lane == Lane.COMMUNICATION).any():
        return extent(timeline)
    share = blocked_ns[recorded(timeline)].mean(keepdims=True) / max(timeline.makespan_ns, 1)
    return f"{extent(timeline)}, blocked {_percent_range(share)} of the time"


def summary(timeline: Timeline) -> str:
    """Return a sentence: ranks, duration, blocked share, what was sent, busy share, overlap; then problems.

    Messages are counted where they are sent, collectives once for each rank that calls one, remote calls at the caller.
    """
    parts = [extent(timeline)]
    if not len(timeline):
        return f"{parts[0]}."
    kinds, kind = timeline.kind_codes
    rows, times = np.flatnonzero(timeline.lane == Lane.COMMUNICATION), metrics.lane_times(timeline)
    called = np.bincount(kind[rows], minlength=len(kinds))
    if len(rows) or times.blocked_ns.any():
        parts.append(_blocked(timeline, times.blocked_ns))
    sends, receives, remote = (np.isin(kinds, words) for words in (SENDS, RECEIVES, REMOTE_CALLS))

    def told(which: npt.NDArray[np.bool_], noun: str) -> str:
        size = format_bytes(int(timeline.bytes[rows[which[kind[rows]]]].sum()))
        return f"{_count(int(called[which].sum()), noun)} ({size})"

    if called[sends].any():
        parts.append(told(sends, "message"))
    if calls := int(called[~(sends | receives | remote)].sum()):
        parts.append(_count(calls, "collective call"))
    if called[remote].any():
        parts.append(told(remote, "remote call"))
    # Of real processes it is not recorded when they compute: what is known is when their calls moved bytes.
    there = recorded(timeline)
    doing = "ranks busy" if times.compute_ns.any() or not len(rows) else "bytes moving"
    parts.append(f"{doing} {_percent_range(times.either_ns[there] / max(timeline.makespan_ns, 1))} of the time")
    if times.communication_ns.any() and times.compute_ns.any():
        hidden = times.hidden_ns.sum() / times.communication_ns.sum()
        parts.append(f"{format_percent(hidden)} of communication hidden under computation")
    if memory.has_memory(timeline):
        peaks = timeline.tables["memory_peak"]["bytes"]
        if peaks.any():
            parts.append(f"peak memory {_bytes_range(peaks)}")
    lines = [", ".join(parts) + "."]
    lines += [problem.text for problem in timeline.problems[:3]]
    if len(timeline.problems) > 3:
        lines.append(f"... and {_count(len(timeline.problems) - 3, 'more problem')}.")
    return "\n".join(lines)


def _blocked(timeline: Timeline, blocked_ns: npt.NDArray[np.int64]) -> str:
    """Return how much of their time the ranks stood still, together and from the least to the most of one."""
    there = recorded(timeline)
    shares, error = blocked_ns[there] / max(timeline.makespan_ns, 1), metrics.wait_error_ns(timeline)[there]
    said, each = _percent_range(shares.mean(keepdims=True)), _percent_range(shares)
    doubt = 100 * error.mean() / max(timeline.makespan_ns, 1)
    off = f" ± {doubt:.1g} points for the clocks" if doubt >= 0.05 else ""
    return f"blocked {said} of the time{off}" + (f" (each rank {each})" if each != said else "")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _bytes_range(sizes: npt.NDArray[np.int64]) -> str:
    low, high = format_bytes(int(sizes.min())), format_bytes(int(sizes.max()))
    return low if low == high else f"{low} to {high}"


def _percent_range(shares: npt.NDArray[np.float64]) -> str:
    low, high = round(100 * float(shares.min())), round(100 * float(shares.max()))
    return f"{low} %" if low == high else f"{low} to {high} %"
