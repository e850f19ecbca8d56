"""Numbers read off a timeline. Times are ns, bandwidths bytes per second, shares lie in 0..1.

What overlaps is counted once. A rank is busy while it computes or bytes of its calls move, and blocked while it stands
in a call or in ``wait()`` and nothing moves (labkit.timeline.transfers). Named regions are in no number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from labkit.errors import ConfigError
from labkit.timeline.cached_answers import cached_with_timeline
from labkit.timeline.grouping import NO_ROWS, by_rank, by_rank_and_lane
from labkit.timeline.intervals import Intervals, total, union, without
from labkit.timeline.messages import RECEIVES, REMOTE_CALLS, SENDS, is_call, of_kind
from labkit.timeline.span import Lane
from labkit.timeline.transfers import moving

if TYPE_CHECKING:
    from labkit.timeline.timeline import Timeline


def intervals_of_ranks(timeline: Timeline, lanes: Sequence[Lane]) -> list[Intervals]:
    """Return for each rank when it worked in any of the lanes: of communication, when bytes moved."""
    groups, parts = by_rank_and_lane(timeline), []
    for lane in lanes:
        if lane == Lane.COMMUNICATION:
            calls = moving(timeline)
            rank = timeline.rank[calls.row]
            parts.append(unions_of_ranks(rank, calls.start_ns, calls.end_ns, timeline.num_ranks))
        else:
            rows = [groups.get((rank, lane), NO_ROWS) for rank in range(timeline.num_ranks)]
            parts.append([union(timeline.start_ns[mine], timeline.end_ns[mine]) for mine in rows])
    return parts[0] if len(parts) == 1 else joined(*parts)


def joined(*parts: Sequence[Intervals]) -> list[Intervals]:
    """Return for each rank what any of its parts covers."""
    return [union(*(np.concatenate(side) for side in zip(*mine, strict=True))) for mine in zip(*parts, strict=True)]


@cached_with_timeline
def computed(timeline: Timeline) -> list[Intervals]:
    """Return for each rank when it computed."""
    return intervals_of_ranks(timeline, [Lane.COMPUTE])


@cached_with_timeline
def communicated(timeline: Timeline) -> list[Intervals]:
    """Return for each rank when bytes of its calls moved."""
    return intervals_of_ranks(timeline, [Lane.COMMUNICATION])


@cached_with_timeline
def worked(timeline: Timeline) -> list[Intervals]:
    """Return for each rank when it computed or bytes of its calls moved."""
    return joined(computed(timeline), communicated(timeline))


_KEPT = {
    (Lane.COMPUTE,): computed,
    (Lane.COMMUNICATION,): communicated,
    (Lane.COMPUTE, Lane.COMMUNICATION): worked,
}


def busy_ns(timeline: Timeline, lanes: Sequence[Lane] = (Lane.COMPUTE, Lane.COMMUNICATION)) -> npt.NDArray[np.int64]:
    """Return for each rank the time in which it computed or bytes of its calls moved, shape (num_ranks,).

    A call that is blocked is not busy, and neither is a named region.
    """
    find = _KEPT.get(tuple(lanes))
    return totals(find(timeline) if find else intervals_of_ranks(timeline, lanes))


@cached_with_timeline
def stood_of_ranks(timeline: Timeline) -> list[Intervals]:
    """Return for each rank when it was in a call that it could not leave, or in ``wait()``."""
    stands = of_kind(timeline, "wait")
    calls = timeline.tables.get("call")
    if calls is not None and "blocking" in calls:
        stands[calls["span"][calls["blocking"].astype(bool)]] = True
    return [union(timeline.start_ns[rows], timeline.end_ns[rows]) for rows in by_rank(timeline, stands)]


@cached_with_timeline
def blocked_of_ranks(timeline: Timeline) -> list[Intervals]:
    """Return for each rank when it stood still: in a call or in ``wait()``, with nothing of its calls moving.

    Where another thread of the rank computes meanwhile it does not stand still.
    """
    busy = worked(timeline)
    return [without(each, work) for each, work in zip(stood_of_ranks(timeline), busy, strict=True)]


def wait_ns(timeline: Timeline) -> npt.NDArray[np.int64]:
    """Return for each rank the time it was blocked, shape (num_ranks,); see :func:`blocked_of_ranks`."""
    return totals(blocked_of_ranks(timeline))


def blocked_share(timeline: Timeline) -> npt.NDArray[np.float64]:
    """Return wait_ns over the makespan, shape (num_ranks,); zeros where the makespan is 0."""
    return wait_ns(timeline) / max(timeline.makespan_ns, 1)


def wait_error_ns(timeline: Timeline) -> npt.NDArray[np.int64]:
    """Return by how much wait_ns may be off for each rank, because clocks are, shape (num_ranks,)."""
    error = np.zeros(timeline.num_ranks, dtype=np.int64)
    calls = moving(timeline)
    doubtful = np.flatnonzero(calls.err_ns)
    np.add.at(error, timeline.rank[calls.row[doubtful]], calls.err_ns[doubtful])
    return error


@dataclass(frozen=True)
class LaneTimes:
    """How long each rank computed, moved bytes, did either, and was blocked, ns; arrays of shape (num_ranks,)."""

    compute_ns: npt.NDArray[np.int64]
    communication_ns: npt.NDArray[np.int64]
    either_ns: npt.NDArray[np.int64]
    blocked_ns: npt.NDArray[np.int64]

    @property
    def hidden_ns(self) -> npt.NDArray[np.int64]:
        """Return how long each rank computed while bytes moved."""
        return self.compute_ns + self.communication_ns - self.either_ns


def lane_times(timeline: Timeline) -> LaneTimes:
    """Return for each rank the time it computed, moved bytes, did either, and was blocked."""
    compute, communication = busy_ns(timeline, [Lane.COMPUTE]), busy_ns(timeline, [Lane.COMMUNICATION])
    return LaneTimes(compute, communication, busy_ns(timeline), wait_ns(timeline))


def busy_share(
    timeline: Timeline, lanes: Sequence[Lane] = (Lane.COMPUTE, Lane.COMMUNICATION)
) -> npt.NDArray[np.float64]:
    """Return busy_ns over the makespan, shape (num_ranks,); zeros where the makespan is 0."""
    return busy_ns(timeline, lanes) / max(timeline.makespan_ns, 1)


def bytes_sent(timeline: Timeline) -> npt.NDArray[np.int64]:
    """Return the bytes each rank sent point to point, shape (num_ranks,).

    Collectives are not in it: what they put on the wire depends on the algorithm, which the record does not show; see
    :func:`collective_payload_bytes`.
    """
    return _sum_by_rank(timeline, of_kind(timeline, *SENDS))


def bytes_received(timeline: Timeline) -> npt.NDArray[np.int64]:
    """Return the bytes each rank received point to point, shape (num_ranks,)."""
    return _sum_by_rank(timeline, of_kind(timeline, *RECEIVES))


def collective_payload_bytes(timeline: Timeline) -> npt.NDArray[np.int64]:
    """Return the payload of the collectives each rank called, as nccl-tests counts it, shape (num_ranks,).

    This is the size of the problem (for all_reduce the tensor, for all_gather the gathered tensor), not what crossed
    a wire.
    """
    return _sum_by_rank(timeline, is_call(timeline) & ~of_kind(timeline, *SENDS, *RECEIVES, *REMOTE_CALLS))


def remote_call_bytes(timeline: Timeline) -> npt.NDArray[np.int64]:
    """Return the bytes of the arguments of the remote calls each rank made, without replies; shape (num_ranks,)."""
    return _sum_by_rank(timeline, of_kind(timeline, *REMOTE_CALLS))


def hidden_communication_share(timeline: Timeline, rank: int | None = None) -> float:
    """Return the share of the time in which bytes moved during which the same rank also computed; 0 without any.

    Operators count as computation, which a virtual cluster and a profile record; names given with ``labkit.span`` never
    do.

    Args:
        timeline: What was recorded.
        rank: One rank, or None for the communication time of all ranks taken together.
    """
    ranks = slice(None) if rank is None else [rank]
    times = lane_times(timeline)
    communication = times.communication_ns[ranks].sum()
    return float(times.hidden_ns[ranks].sum() / communication) if communication else 0.0


def algbw(num_bytes: float, duration_ns: float) -> float:
    """Return bytes over time, in bytes per second.

    Raises:
        ConfigError: If the duration is not positive.
    """
    if duration_ns <= 0:
        raise ConfigError(f"There is no bandwidth over {duration_ns} ns; the duration must be above 0.")
    return num_bytes / duration_ns * 1e9


def busbw_factor(kind: str, world_size: int) -> float:
    """Return what turns algbw into busbw for this collective on world_size ranks.

    Raises:
        ConfigError: If nccl-tests defines no bus bandwidth for the kind.
    Source: nccl-tests, doc/PERFORMANCE.md; gather and scatter from src/gather.cu and src/scatter.cu.
    """
    base = kind.removesuffix("_coalesced").removesuffix("_into_tensor").removesuffix("_tensor").removesuffix("_single")
    if base == "all_reduce":
        return 2 * (world_size - 1) / world_size
    if base in ("reduce_scatter", "all_gather", "all_to_all", "gather", "scatter"):
        return (world_size - 1) / world_size
    if base in ("broadcast", "reduce", *SENDS, *RECEIVES):
        return 1.0
    raise ConfigError(
        f"nccl-tests defines no bus bandwidth for {kind!r}; it does for collectives and for send and recv."
    )


def busbw(kind: str, num_bytes: float, duration_ns: float, world_size: int) -> float:
    """Return algbw times :func:`busbw_factor`, in bytes per second: comparable with a link's speed at any world size.

    Args:
        kind: c10d's word, such as "all_reduce".
        num_bytes: The size nccl-tests prints: for all_gather and reduce_scatter that of the whole tensor.
        duration_ns: How long it took.
        world_size: Ranks in the group.
    """
    return algbw(num_bytes, duration_ns) * busbw_factor(kind, world_size)


@dataclass(frozen=True)
class CollectiveTiming:
    """One collective as all its ranks saw it.

    Attributes:
        kind: "all_reduce", ...
        group: Name of the process group.
        number: Its place among the collectives of the group, from 0.
        num_ranks: Ranks that called it.
        bytes: Payload.
        skew_ns: From the first rank's begin to the last rank's: time spent waiting for the late one.
        duration_ns: From the last rank's begin to the last rank's end.
        algbw: bytes / duration, B/s; nan where the duration is 0.
        busbw: algbw with nccl-tests' correction; nan where it defines none.
    """

    kind: str
    group: str
    number: int
    num_ranks: int
    bytes: int
    skew_ns: int
    duration_ns: int
    algbw: float
    busbw: float


def collective_timings(timeline: Timeline) -> list[CollectiveTiming]:
    """Return every collective of the timeline once, in the order in which its first rank began it.

    Calls belong together when group and number agree; where ranks called different things, each is listed by itself.
    """
    calls = timeline.tables.get("call")
    if calls is None:
        return []
    instances: dict[tuple[str, int, str], list[int]] = {}
    for place, row in enumerate(calls["span"].tolist()):
        if str(timeline.kind[row]) not in ("span", *SENDS, *RECEIVES, *REMOTE_CALLS):
            key = (str(calls["group"][place]), int(calls["number"][place]), str(timeline.kind[row]))
            instances.setdefault(key, []).append(row)
    ordered = sorted(instances.items(), key=lambda item: (int(timeline.start_ns[item[1]].min()), item[0]))
    return [_timing(timeline, key, rows) for key, rows in ordered]


def _timing(timeline: Timeline, key: tuple[str, int, str], rows: list[int]) -> CollectiveTiming:
    group, number, kind = key
    start, end = timeline.start_ns[rows], timeline.end_ns[rows]
    duration = int(end.max() - start.max())
    size = int(timeline.bytes[rows].max())
    speed = algbw(size, duration) if duration > 0 else float("nan")
    try:
        factor = busbw_factor(kind, len(rows))
    except ConfigError:
        factor = float("nan")
    skew = int(start.max() - start.min())
    return CollectiveTiming(kind, group, number, len(rows), size, skew, duration, speed, speed * factor)


def _sum_by_rank(timeline: Timeline, keep: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    sums = np.zeros(timeline.num_ranks, dtype=np.int64)
    np.add.at(sums, timeline.rank[keep], timeline.bytes[keep])
    return sums


def unions_of_ranks(
    rank: npt.NDArray[Any], start: npt.NDArray[Any], end: npt.NDArray[Any], num_ranks: int
) -> list[Intervals]:
    """Return for each rank the union of the intervals that are its own."""
    if (rank[1:] < rank[:-1]).any():
        order = np.argsort(rank, kind="stable")
        rank, start, end = rank[order], start[order], end[order]
    edges = np.searchsorted(rank, np.arange(num_ranks + 1)).tolist()
    return [union(start[a:b], end[a:b]) for a, b in pairwise(edges)]


def totals(parts: Sequence[Intervals]) -> npt.NDArray[np.int64]:
    """Return the summed length of each."""
    return np.array([total(each) for each in parts], dtype=np.int64)
