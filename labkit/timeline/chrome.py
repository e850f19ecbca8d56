"""Chrome trace export, laid out so that Perfetto shows ranks in order.

Seen in trial: process ids 0 and 1 are special, so rank r is process 1000 + r; threads need numbers that are unique over
all processes; order comes from the sort indices; names that differ only in digits share a colour, so the category
leads; slices of one thread must nest, so spans that merely overlap go to further threads of their lane. Each stream
of a device has its own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from labkit.timeline import memory
from labkit.timeline.messages import REMOTE_CALLS, SENDS
from labkit.timeline.span import Lane

if TYPE_CHECKING:
    from labkit.timeline.timeline import Timeline

LANE_NAMES = {Lane.COMPUTE: "compute", Lane.COMMUNICATION: "communication", Lane.HOST: "host", Lane.REGION: "regions"}
_CATEGORY = {Lane.COMPUTE: "compute", Lane.COMMUNICATION: "comm", Lane.HOST: "host", Lane.REGION: "region"}
_ROWS_PER_LANE = 1000


def process_id(rank: int) -> int:
    """Return the process id under which a rank appears."""
    return 1000 + rank


def thread_id(rank: int, lane: int, row: int) -> int:
    """Return the thread id of a row of a lane, unique over all ranks."""
    return 10 * _ROWS_PER_LANE * process_id(rank) + _ROWS_PER_LANE * lane + min(row, _ROWS_PER_LANE - 1)


def nesting_rows(start: Any, end: Any) -> Any:
    """Return for each interval the first row in which it nests in, or lies after, all that came before."""
    rows = np.zeros(len(start), dtype=np.int64)
    open_ends: list[list[int]] = []
    for index in np.lexsort((-end, start)).tolist():
        begin, finish = int(start[index]), int(end[index])
        for row, ends in enumerate(open_ends):
            while ends and ends[-1] <= begin:
                ends.pop()
            if not ends or finish <= ends[-1]:
                ends.append(finish)
                rows[index] = row
                break
        else:
            rows[index] = len(open_ends)
            open_ends.append([finish])
    return rows


def events(timeline: Timeline) -> list[dict[str, Any]]:
    """Return the trace's events: names and order of rows, slices, arrows of messages, memory as counters."""
    found: list[dict[str, Any]] = []
    thread, streams = np.zeros(len(timeline), dtype=np.int64), _streams(timeline)
    for rank in range(timeline.num_ranks):
        pid = process_id(rank)
        found.append(_metadata("process_name", pid, 0, name=f"rank {rank}"))
        found.append(_metadata("process_sort_index", pid, 0, sort_index=rank))
        for lane in Lane:
            rows = np.flatnonzero((timeline.rank == rank) & (timeline.lane == lane))
            first = 0
            for stream in dict.fromkeys(streams[rows].tolist()):
                mine = rows[streams[rows] == stream]
                nested = first + nesting_rows(timeline.start_ns[mine], timeline.end_ns[mine])
                thread[mine] = [thread_id(rank, lane, row) for row in nested.tolist()]
                for row in range(first, min(int(nested.max()) + 1, _ROWS_PER_LANE)):
                    tid = thread_id(rank, lane, row)
                    name = LANE_NAMES[lane] + (f", {stream}" if stream else "")
                    name += f" {row - first + 1}" if row > first else ""
                    found.append(_metadata("thread_name", pid, tid, name=name))
                    found.append(_metadata("thread_sort_index", pid, tid, sort_index=_ROWS_PER_LANE * lane + row))
                first = int(nested.max()) + 1
    sources: dict[str, Any] = timeline.tables.get("source", {"span": [], "line": []})
    source_of = dict(zip(np.asarray(sources["span"]).tolist(), np.asarray(sources["line"]).tolist(), strict=True))
    for index, span in enumerate(timeline.rows()):
        args: dict[str, Any] = {"kind": span.kind, "bytes": span.bytes}
        if span.peer >= 0:
            args["peer"] = span.peer
        if index in source_of:
            args["source"] = source_of[index]
        found.append(
            {
                "ph": "X",
                "pid": process_id(span.rank),
                "tid": int(thread[index]),
                "cat": _CATEGORY[span.lane],
                "name": f"{'wait' if span.kind == 'wait' else _CATEGORY[span.lane]}/{span.name}",
                "ts": span.start_ns / 1000,
                "dur": max(span.duration_ns, 1) / 1000,
                "args": args,
            }
        )
    return found + _arrows(timeline, thread) + _counters(timeline)


def write(timeline: Timeline, path: str | Path) -> None:
    """Write the trace as JSON, times in microseconds as the format demands."""
    trace = {"traceEvents": events(timeline), "displayTimeUnit": "ns"}
    Path(path).write_text(json.dumps(trace, separators=(",", ":")), encoding="utf-8")


def _streams(timeline: Timeline) -> Any:
    """Return the stream of each span, "" for the one there is without a choice."""
    streams = np.full(len(timeline), "", dtype=object)
    table = timeline.tables.get("stream")
    if table is not None:
        streams[table["span"]] = table["stream"].tolist()
    return streams


def _metadata(what: str, pid: int, tid: int, **args: Any) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": args}


def _counters(timeline: Timeline) -> list[dict[str, Any]]:
    """Return what each rank held of what, one event at each time it changed: the most it held at that time."""
    found: list[dict[str, Any]] = []
    if not memory.has_memory(timeline):
        return found
    for rank in range(timeline.num_ranks):
        for time_ns, held in memory.held_over_time(timeline, rank):
            counter = {"ph": "C", "name": "memory (bytes)", "pid": process_id(rank), "tid": 0, "ts": time_ns / 1000}
            found.append(counter | {"args": held})
    return found


def _arrows(timeline: Timeline, thread: Any) -> list[dict[str, Any]]:
    """Return an arrow from each send to its receive; it binds to the slices that enclose its two ends."""
    ends: dict[int, dict[str, int]] = {}
    for index in np.flatnonzero(timeline.flow >= 0).tolist():
        word = "send" if timeline.kind[index] in (*SENDS, *REMOTE_CALLS) else "recv"
        ends.setdefault(int(timeline.flow[index]), {})[word] = index
    found = []
    for flow, both in sorted(ends.items()):
        if len(both) < 2:
            continue
        send, receive = both["send"], both["recv"]
        leaves = int(timeline.start_ns[send])
        arrives = max(leaves, int(timeline.start_ns[receive]))
        for phase, index, time_ns in (("s", send, leaves), ("f", receive, arrives)):
            arrow = {
                "ph": phase,
                "id": flow,
                "cat": "comm",
                "name": "message",
                "pid": process_id(int(timeline.rank[index])),
                "tid": int(thread[index]),
                "ts": time_ns / 1000,
            }
            found.append(arrow | ({"bp": "e"} if phase == "f" else {}))
    return found
