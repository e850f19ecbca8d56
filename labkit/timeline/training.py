"""What a training run comes to: time of a step, communication nobody computes under, memory, FLOP utilisation.

Steps are told apart by the spans around ``optimizer.step()`` that a script's run has (labkit.scripts). Everything up to
the end of the first step is left out: a program prepares itself there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from labkit.timeline import memory, metrics
from labkit.timeline.span import Lane
from labkit.units import format_bytes, format_percent, format_time

if TYPE_CHECKING:
    from labkit.timeline.timeline import Timeline

STEP = "optimizer.step"
"""Name of the span around every optimizer step of a script."""


@dataclass(frozen=True)
class Training:
    """What a run comes to; None where its record does not say.

    Attributes:
        num_steps: Optimizer steps of the rank that made most.
        step_ns: Median time from one optimizer step's end to the next.
        exposed_ns: Communication of a step under which its rank did not compute; the mean over ranks and steps.
        peak_bytes: The most memory a rank held.
        capacity_bytes: What a device holds.
        reserved_bytes: The most that a rank's allocator took of its device, where that is known.
        utilisation: Model FLOPs over what the devices could do in that time; computing activations anew is not in it.
    """

    num_steps: int
    step_ns: int | None
    exposed_ns: float | None
    peak_bytes: int | None
    capacity_bytes: int | None
    utilisation: float | None
    reserved_bytes: int | None = None

    def lines(self) -> list[str]:
        """Return it as a terminal shows it, a line for each figure."""
        told = []
        if self.step_ns is None:
            told.append("step time           not known: fewer than two optimizer steps")
        else:
            told.append(f"step time           {format_time(self.step_ns)} (median of {self.num_steps} steps)")
        if self.exposed_ns is not None:
            share = f" ({format_percent(self.exposed_ns / self.step_ns)} of a step)" if self.step_ns else ""
            told.append(f"exposed comm.       {format_time(round(self.exposed_ns))}{share}")
        if self.peak_bytes is not None and self.capacity_bytes:
            reserved = f", {format_bytes(self.reserved_bytes)} reserved" if self.reserved_bytes else ""
            told.append(
                f"peak memory         {format_bytes(self.peak_bytes)} of {format_bytes(self.capacity_bytes)}{reserved}"
            )
        if self.utilisation is not None:
            told.append(f"model FLOP util.    {100 * self.utilisation:.3g} %")
        return told


def training(timeline: Timeline) -> Training:
    """Return what a training run comes to."""
    ends = [_step_ends(timeline, rank) for rank in range(timeline.num_ranks)]
    num_steps = max((len(each) for each in ends), default=0)
    lengths = np.concatenate([np.diff(each) for each in ends]) if ends else np.zeros(0)
    step_ns = round(float(np.median(lengths))) if len(lengths) else None
    peak = capacity = reserved = None
    if memory.has_memory(timeline):
        peaks = timeline.tables["memory_peak"]
        peak, capacity = int(peaks["bytes"].max(initial=0)), int(peaks["capacity"].max(initial=0))
        reserved = int(peaks["reserved"].max(initial=0)) if "reserved" in peaks else None
    exposed, utilisation = _exposed(timeline, ends), _utilisation(timeline, ends)
    return Training(num_steps, step_ns, exposed, peak, capacity, utilisation, reserved)


def _step_ends(timeline: Timeline, rank: int) -> npt.NDArray[np.int64]:
    """Return when each step of a rank ended; a step inside another, as of a sharded optimizer, is part of it."""
    rows = np.flatnonzero((timeline.rank == rank) & (timeline.name == STEP))
    ends: list[int] = []
    for start, end in sorted(zip(timeline.start_ns[rows].tolist(), timeline.end_ns[rows].tolist(), strict=True)):
        if not ends or start >= ends[-1]:
            ends.append(end)
    return np.array(ends, dtype=np.int64)


def _windows(ends: list[npt.NDArray[np.int64]]) -> list[tuple[int, int, int]]:
    """Return for each rank with two steps or more (rank, start, end) of the time they are measured in."""
    return [(rank, int(each[0]), int(each[-1])) for rank, each in enumerate(ends) if len(each) > 1]


def _exposed(timeline: Timeline, ends: list[npt.NDArray[np.int64]]) -> float | None:
    if not metrics.busy_ns(timeline, [Lane.COMPUTE]).any():
        return None  # as on labkit.local, which records communication: what was computed beside it is not known
    shares = []
    for rank, start, end in _windows(ends):
        mine = timeline.select(
            (timeline.rank == rank) & (timeline.end_ns <= end) & (timeline.end_ns > start) & (timeline.name != STEP)
        )
        times = metrics.lane_times(mine)
        exposed = int((times.communication_ns - times.hidden_ns)[rank])
        shares.append(exposed / (len(ends[rank]) - 1))
    return float(np.mean(shares)) if shares else None


def _utilisation(timeline: Timeline, ends: list[npt.NDArray[np.int64]]) -> float | None:
    work = timeline.tables.get("work")
    if work is None:
        return None
    shares = []
    for rank, start, end in _windows(ends):
        mine = work["rank"] == rank
        times, ideal = work["time_ns"][mine], work["ideal_ns"][mine]
        done = np.interp([start, end], times, ideal)
        shares.append(float(done[1] - done[0]) / (end - start))
    return float(np.mean(shares)) if shares else None
