"""A timeline as the page wants it: packed columns, at most 28 bytes an event, and a little JSON beside them.

Events are sorted by row of the picture, then begin, the longer first: the order in which the last of those that
overlap lies on top. A row's number is not stored, for the rows follow each other. Times are ns from the first begin.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from labkit.errors import ConfigError
from labkit.timeline import critical_path as _critical_path
from labkit.timeline.distinct import distinct_rows
from labkit.timeline.in_time import step_in_time_ns
from labkit.timeline.memory import changing_memory, memory_curve
from labkit.timeline.messages import RECEIVES, REMOTE_CALLS, SENDS, SERVED
from labkit.timeline.metrics import blocked_of_ranks, busbw_factor, lane_times
from labkit.timeline.similar_ranks import similar_ranks
from labkit.timeline.source_lines import shown_source
from labkit.timeline.span import Lane
from labkit.timeline.streams import streams
from labkit.timeline.summary import headline
from labkit.timeline.timeline import Timeline
from labkit.timeline.waiting import come_last
from labkit.units import format_time
from labkit.widgets.finding import finding
from labkit.widgets.layout import shown_ranks, used_lanes
from labkit.widgets.palette import CATEGORIES, categories_of

BYTES_PER_EVENT = 28
"""At most: start, duration and bytes as float64 (whole numbers to 2**53), label as uint32. Columns whose numbers are
small travel as narrower ones. Where streams were recorded, an event has one byte more for its own (two above 255)."""
_NARROW = (np.uint8, np.uint16, np.uint32)


def pack(
    timeline: Timeline,
    *,
    name: str = "",
    ranks: Sequence[int] | None = None,
    focus: int = -1,
    origin_ns: int | None = None,
    has_met: bool = False,
    is_beside: bool = False,
) -> dict[str, Any]:
    """Return what the page needs to show a timeline, for a trait that carries bytes as they are.

    Args:
        timeline: What was recorded.
        name: What to call the run beside another one.
        ranks: Which ranks to show; None shows all, or 64 evenly spaced ones and that of `focus`.
        focus: A row of the timeline whose place in the page's order is returned as "focus".
        origin_ns: The time that becomes 0; the first begin if None. It is given of a run under way, of which nobody
            knows yet which calls met and when its ranks stood still.
        has_met: Whether it is known all the same, as far as it has come.
        is_beside: Whether another run stands beside it: then few ranks that exchange messages are folded, too.
    """
    needed = int(timeline.rank[focus]) if focus >= 0 else -1
    shown = shown_ranks(timeline, needed) if ranks is None else sorted(set(ranks))
    order, rows = _sorted(timeline, shown)
    t0 = origin_ns if origin_ns is not None else timeline.extent_ns[0]
    start = timeline.start_ns[order] - t0
    labels, codes = _labels(timeline, order)
    columns: dict[str, npt.NDArray[Any]] = {
        "start": start.astype(np.float64),
        "duration": (timeline.end_ns[order] - timeline.start_ns[order]).astype(np.float64),
        "bytes": timeline.bytes[order].astype(np.float64),
    }
    columns |= _collectives(timeline, t0)
    memory = sorted(set(changing_memory(timeline)) & set(shown))
    for rank in memory:
        times, held = memory_curve(timeline, rank)
        columns |= {f"memory_time_{rank}": (times - t0).astype(np.float64)}
        columns |= {f"memory_held_{rank}": held.astype(np.float64)}
    place = np.full(len(timeline), -1, dtype=np.int64)
    place[order] = np.arange(len(order))
    flows = _flows(timeline, place)
    blocked, counts = _blocked(timeline, shown if has_met or origin_ns is None else [], t0)
    columns |= {"label": codes} | flows | _cuts(timeline, place, t0) | blocked | _calls(timeline, place)
    names, on_stream = streams(timeline)
    if names and origin_ns is None:
        columns |= {"stream": (on_stream[order] + 1).astype(np.uint32)} | _held(timeline, place, t0)
    data, layout = _joined(columns)
    choice = f" ({len(shown)} of the ranks shown)" if len(shown) < timeline.num_ranks else ""
    clock = timeline.tables.get("clock", {})
    errors = _clock_errors(clock)
    sentences = timeline.summary()
    wrong = sentences.splitlines()[1:] + _too_early(
        timeline, order[flows["flow_from"]], order[flows["flow_to"]], errors
    )
    return {
        "name": name,
        **_titled(timeline, finding(timeline) if origin_ns is None else "", choice),
        "summary": sentences,
        "says": " ".join(wrong) if len(timeline) else "Nothing recorded.",
        "source": _world(clock, max((error for _, error in errors), default=0)),
        "span": int(timeline.end_ns.max()) - t0 if len(timeline) else 0,
        "rows": rows,
        "blocked": counts,
        "measured": _measured(timeline, t0),
        **({"hides": bool(lane_times(timeline).hidden_ns[shown].any())} if origin_ns is None else {}),
        "alike": similar_ranks(timeline, shown, even_few=is_beside) if origin_ns is None else [],
        "labels": labels,
        **({"streams": names} if "stream" in columns else {}),
        "memory": memory,
        "clock": errors,
        "layout": layout,
        "categories": [
            [category.name, category.colour, category.dark, category.hatched, category.dotted]
            for category in CATEGORIES
        ],
        "columns": data,
        "focus": int(place[focus]) if focus >= 0 else -1,
    }


def pack_path(timeline: Timeline, ranks: Sequence[int] | None = None) -> dict[str, Any]:
    """Return the critical path as packed columns: for each piece its ranks and its begin and end."""
    shown = set(shown_ranks(timeline) if ranks is None else ranks)
    steps = _critical_path.critical_path(timeline)
    t0 = timeline.extent_ns[0]
    columns: dict[str, npt.NDArray[Any]] = {
        "path_start": np.array([step.start_ns - t0 for step in steps], dtype=np.float64),
        "path_end": np.array([step.end_ns - t0 for step in steps], dtype=np.float64),
        "path_from": np.array([step.from_rank for step in steps], dtype=np.uint32),
        "path_to": np.array([step.rank for step in steps], dtype=np.uint32),
    }
    data, layout = _joined(columns)
    hidden = sum(step.rank not in shown for step in steps)
    left_out = f" {hidden} of its {len(steps)} pieces lie on ranks that are not shown." if hidden else ""
    text = _critical_path.in_words(timeline, steps) + left_out
    return {"columns": data, "layout": layout, "text": text}


def for_page(
    timeline: Timeline, name: str = "", ranks: Sequence[int] | None = None, *, is_beside: bool = False
) -> dict[str, Any]:
    """Return a run as ``showPage`` takes it: packed with its path, columns in base 64, for JSON; see pack."""
    run = pack(timeline, name=name, ranks=ranks, is_beside=is_beside)
    del run["focus"]
    return _as_text(run) | {"path": _as_text(pack_path(timeline, ranks))}


def _as_text(part: dict[str, Any]) -> dict[str, Any]:
    return {**part, "columns": base64.b64encode(part["columns"]).decode()}


def _sorted(timeline: Timeline, shown: Sequence[int]) -> tuple[npt.NDArray[np.int64], list[list[int]]]:
    """Return the events in the order of the picture and its rows: rank, lane, number of events."""
    used = [int(lane) for lane in used_lanes(timeline)]
    row_of = np.full((max(timeline.num_ranks, 1), len(Lane)), -1, dtype=np.int64)
    for number, rank in enumerate(shown):
        row_of[rank, used] = number * len(used) + np.arange(len(used))
    row = row_of[timeline.rank, timeline.lane] if len(timeline) else np.empty(0, dtype=np.int64)
    row = np.where(timeline.kind == "wait", -1, row)  # a wait has no bar: it is seen as time blocked in its call
    kept = np.flatnonzero(row >= 0)
    order = kept[np.lexsort((kept, -timeline.end_ns[kept], timeline.start_ns[kept], row[kept]))]
    counts = np.bincount(row[order], minlength=len(shown) * len(used)).tolist()
    rows = [
        [rank, lane, counts[number * len(used) + at]]
        for number, rank in enumerate(shown)
        for at, lane in enumerate(used)
    ]
    return order, rows


def _labels(timeline: Timeline, order: npt.NDArray[np.int64]) -> tuple[list[list[Any]], npt.NDArray[np.uint32]]:
    """Return the distinct [name, kind, category, peer, source, line of code], and which one each event has."""
    source = np.zeros(len(timeline), dtype=np.int64)
    lines = [""]
    table = timeline.tables.get("source")
    if table is not None and len(table["span"]):
        distinct, codes = distinct_rows([table["line"]])
        lines += table["line"][distinct].tolist()
        source[table["span"]] = codes + 1
    category = categories_of(timeline)
    first, codes = distinct_rows(
        [timeline.name[order], timeline.kind[order], category[order], timeline.peer[order], source[order]]
    )
    shown = [shown_source(line) for line in lines]
    labels: list[list[Any]] = []
    for row in order[first].tolist():
        name, kind = str(timeline.name[row]), str(timeline.kind[row])
        labels.append([name, kind, int(category[row]), int(timeline.peer[row]), *shown[source[row]]])
    return labels, codes.astype(np.uint32)


def _flows(timeline: Timeline, place: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[np.uint32]]:
    """Return the two events of each message whose ends are both shown."""
    rows = np.flatnonzero((timeline.flow >= 0) & (place >= 0))
    leaves = np.isin(timeline.kind[rows], (*SENDS, *REMOTE_CALLS))
    ends = []
    for these in (rows[leaves], rows[~leaves]):
        flow, first = np.unique(timeline.flow[these], return_index=True)
        ends.append((flow, these[first]))
    (sent, senders), (received, receivers) = ends
    _, left, right = np.intersect1d(sent, received, assume_unique=True, return_indices=True)
    return {
        "flow_from": place[senders[left]].astype(np.uint32),
        "flow_to": place[receivers[right]].astype(np.uint32),
    }


def _cuts(timeline: Timeline, place: npt.NDArray[np.int64], t0: int) -> dict[str, npt.NDArray[Any]]:
    """Return when bytes of those calls moved that were blocked for some of their time, in the page's order."""
    table = timeline.transfers
    event = place[table["span"]]
    keep = np.flatnonzero(event >= 0)
    keep = keep[np.lexsort((table["start_ns"][keep], event[keep]))]
    return {
        "cut_event": event[keep].astype(np.uint32),
        "cut_start": (table["start_ns"][keep] - t0).astype(np.float64),
        "cut_end": (table["end_ns"][keep] - t0).astype(np.float64),
    }


def _held(timeline: Timeline, place: npt.NDArray[np.int64], t0: int) -> dict[str, npt.NDArray[Any]]:
    """Return for each wait of a stream the event it waited for, the one that began when it was over, and its times."""
    table = timeline.tables.get("held") or dict.fromkeys(("span", "of", "start_ns", "end_ns"), np.empty(0, np.int64))
    until, of = place[table["span"]], place[table["of"]]
    keep = np.flatnonzero((until >= 0) & (of >= 0))
    return {
        "held_from": of[keep].astype(np.uint32),
        "held_to": until[keep].astype(np.uint32),
        "held_since": (table["start_ns"][keep] - t0).astype(np.float64),
        "held_until": (table["end_ns"][keep] - t0).astype(np.float64),
    }


def _measured(timeline: Timeline, t0: int) -> list[int] | None:
    """Return from when to when anything but names was recorded, None where that is all there is."""
    real = timeline.lane != Lane.REGION
    if real.all() or not real.any():
        return None
    found = [int(timeline.start_ns[real].min()) - t0, int(timeline.end_ns[real].max()) - t0]
    return None if found == [timeline.extent_ns[0] - t0, timeline.extent_ns[1] - t0] else found


def _blocked(
    timeline: Timeline, shown: Sequence[int], t0: int
) -> tuple[dict[str, npt.NDArray[np.float64]], list[list[int]]]:
    """Return when each rank stood still, rank after rank, and for each rank [rank, number of such intervals]."""
    ranks = blocked_of_ranks(timeline) if len(timeline) and len(shown) else []
    mine = [ranks[rank] for rank in shown if rank < len(ranks)]
    columns = {}
    for side, name in enumerate(("start", "end")):
        times = np.concatenate([each[side] for each in mine]) if mine else np.empty(0, dtype=np.int64)
        columns[f"blocked_{name}"] = (times - t0).astype(np.float64)
    return columns, [[rank, len(each[0])] for rank, each in zip(shown, mine, strict=False)]


def _calls(timeline: Timeline, place: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[np.uint32]]:
    """Return the events that are a rank's part of a collective, in the page's order, and of which one."""
    calls = timeline.tables.get("call")
    if calls is None or not len(calls["span"]):
        return {}
    span = calls["span"]
    kind = timeline.kind[span]
    keep = np.flatnonzero((place[span] >= 0) & ~np.isin(kind, (*SENDS, *RECEIVES, *REMOTE_CALLS, "span")))
    keep = keep[np.argsort(place[span[keep]], kind="stable")]
    _, of = distinct_rows([calls["group"][keep], calls["number"][keep], kind[keep]])
    return {"call_event": place[span[keep]].astype(np.uint32), "call_of": of.astype(np.uint32)}


def _collectives(timeline: Timeline, t0: int) -> dict[str, npt.NDArray[np.float64]]:
    """Return for each collective with a bus bandwidth when its last rank began, how long it took from then, and bytes.

    The bytes are multiplied by nccl-tests' factor, so that bytes over time is busbw; calls belong together as in
    labkit.timeline.metrics.collective_timings.
    """
    names = ("collective_start", "collective_duration", "collective_bus_bytes")
    calls = timeline.tables.get("call")
    if calls is None or not len(calls["span"]):
        return dict.fromkeys(names, np.empty(0))
    span = calls["span"]
    known: dict[tuple[str, int, str], int] = {}
    keys = zip(calls["group"].tolist(), calls["number"].tolist(), timeline.kind[span].tolist(), strict=True)
    of = np.array([known.setdefault(key, len(known)) for key in keys])
    begin, end, size = (np.zeros(len(known)) for _ in names)
    np.maximum.at(begin, of, timeline.start_ns[span] - t0)
    np.maximum.at(end, of, timeline.end_ns[span] - t0)
    np.maximum.at(size, of, timeline.bytes[span])
    shape = zip((kind for _, _, kind in known), np.bincount(of).tolist(), strict=True)
    factor = np.array([_bus_factor(kind, num_ranks) for kind, num_ranks in shape])
    keep = np.isfinite(factor) & (end > begin)
    return dict(zip(names, (begin[keep], (end - begin)[keep], (size * factor)[keep]), strict=True))


@cache
def _bus_factor(kind: str, num_ranks: int) -> float:
    """Return nccl-tests' factor, nan where it defines none and for what is no collective."""
    if kind in (*SENDS, *RECEIVES, *REMOTE_CALLS, "span"):
        return float("nan")
    try:
        return busbw_factor(kind, num_ranks)
    except ConfigError:
        return float("nan")


def _joined(columns: dict[str, npt.NDArray[Any]]) -> tuple[bytes, dict[str, list[Any]]]:
    """Return the columns as bytes, each at a multiple of 8, and where each begins: [type, offset, length]."""
    parts, layout, at = [], {}, 0
    for name, wide in columns.items():
        column = _narrowed(wide)
        data = np.ascontiguousarray(column).tobytes()
        layout[name] = [f"{column.dtype.kind}{column.dtype.itemsize}", at, len(column)]
        padding = -len(data) % 8
        parts += [data, b"\0" * padding]
        at += len(data) + padding
    return b"".join(parts), layout


def _narrowed(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the column in the narrowest type of whole numbers that holds its values, itself where none does."""
    most, least = column.max(initial=0), column.min(initial=0)
    for narrow in _NARROW:
        if least >= 0 and most <= np.iinfo(narrow).max:
            whole = column.astype(narrow)
            return whole if np.array_equal(whole, column) else column
    return column


def _too_early(
    timeline: Timeline, sent: npt.NDArray[np.int64], received: npt.NDArray[np.int64], errors: list[list[int]]
) -> list[str]:
    """Return a sentence where messages arrive before they left and no error of clocks explains it, else none.

    Args:
        timeline: What was recorded.
        sent: The row of each message at its sender.
        received: The same at its receiver.
        errors: [rank, ns] by which the clocks of some ranks may be off.
    """
    error = np.zeros(timeline.num_ranks, dtype=np.int64)
    for rank, ns in errors:
        error[rank] = ns
    served = timeline.kind[received] == SERVED
    arrives = np.where(served, timeline.start_ns[received], timeline.end_ns[received])
    doubt = np.maximum(error[timeline.rank[sent]], error[timeline.rank[received]])
    early = int((timeline.start_ns[sent] - arrives > doubt).sum())
    messages = "1 message arrives before it left" if early == 1 else f"{early} messages arrive before they left"
    cause = "by more than the clocks may be off (red arrows): the ranks' times do not fit together"
    return [f"{messages}, {cause}."] if early else []


def _world(clock: dict[str, Any], error_ns: int) -> str:
    method = str(clock["method"][0]) if len(clock.get("method", ())) else ""
    known = {"virtual time": "simulated", "": ""}.get(method, "measured")
    return f"{known}, clocks ± {format_time(error_ns)}".lstrip(", ") if error_ns else known


def _titled(timeline: Timeline, found: str, choice: str) -> dict[str, Any]:
    """Return the title, and how long a step would take if those that it says come last came in time, where known."""
    title = {"title": (found or headline(timeline)) + choice}
    if " last; " not in found or _world(timeline.tables.get("clock", {}), 0) != "simulated":
        return title
    late = come_last(timeline)
    in_time = step_in_time_ns(timeline, late.ranks) if late else None
    return title if in_time is None else title | {"in_time": in_time}


def _clock_errors(clock: dict[str, Any]) -> list[list[int]]:
    """Return [rank, error in ns] of each rank whose clock may be off."""
    if "err_ns" not in clock:
        return []
    pairs = zip(clock["rank"].tolist(), clock["err_ns"].tolist(), strict=True)
    return [[rank, error] for rank, error in pairs if error]
