"""The logs of all ranks made into one timeline."""

from __future__ import annotations

from typing import Any

import numpy as np

from labkit.launch.recording import layout
from labkit.launch.recording.agreement import disagreements
from labkit.launch.recording.matching import match_messages
from labkit.launch.recording.read import RankLog, describe_group
from labkit.timeline.messages import RECEIVES, SENDS
from labkit.timeline.span import Lane, Problem
from labkit.timeline.timeline import Timeline
from labkit.timeline.transfers import derived
from labkit.torch_port.operations import BY_KIND


def assemble(logs: list[RankLog], ended_ns: int | None = None) -> Timeline:
    """Return the timeline of these ranks, time 0 where the first span begins.

    What was under way when a rank ended or was read is closed at the last time the rank is known to have lived, or at
    ended_ns, and listed in the table "open".

    Args:
        logs: One per rank, in any order; those without a record become a problem of the timeline.
        ended_ns: When the run was ended (CLOCK_MONOTONIC), where the caller knows.
    """
    problems = [Problem("no_record", -1, f"A rank left no record: {log.missing}.") for log in logs if log.rank < 0]
    logs = sorted((log for log in logs if log.rank >= 0), key=lambda log: log.rank)
    for log in logs:
        if log.dropped:
            text = f"Rank {log.rank} made {log.dropped} more calls and spans than its record holds; they are not shown."
            problems.append(Problem("dropped", log.rank, text))
    parts = [columns_of(log, ended_ns) for log in logs]
    rows: dict[str, Any] = {
        key: np.concatenate([part[key] for part in parts]) if parts else np.empty(0, dtype)
        for key, dtype in _DTYPES.items()
    }
    origin_ns = int(rows["start_ns"].min()) if len(rows["rank"]) else min((log.started_ns for log in logs), default=0)
    rows["start_ns"] -= origin_ns
    rows["end_ns"] -= origin_ns
    flow, replies, found = match_messages(rows)
    problems += [*found, *disagreements(rows)]
    table = np.array(replies, dtype=np.int64).reshape(-1, 2).T
    replied = {"reply": {"span": table[0], "of": table[1]}} if replies else {}
    timeline_rows = {key: rows[key] for key in ("rank", "lane", "start_ns", "end_ns", "name", "kind", "bytes", "peer")}
    timeline = Timeline(
        **timeline_rows, flow=flow, tables=_tables(rows, logs, origin_ns) | replied, problems=tuple(problems),
        num_ranks=max((log.rank for log in logs), default=-1) + 1,
    )  # fmt: skip
    timeline.tables["transfer"] = derived(timeline)
    return timeline


_CALLS = tuple({*BY_KIND, *SENDS, *RECEIVES})
_DTYPES: dict[str, Any] = {
    "rank": np.int32,
    "lane": np.int8,
    "start_ns": np.int64,
    "end_ns": np.int64,
    "name": np.str_,
    "kind": np.str_,
    "bytes": np.int64,
    "peer": np.int32,
    "tag": np.int32,
    "group": np.str_,
    "number": np.int64,
    "source": np.str_,
    "meaning": np.str_,
    "flags": np.uint16,
    "state": np.uint8,
    "index": np.int64,
    "link": np.int64,
    "thread": np.int64,
}


def columns_of(log: RankLog, ended_ns: int | None) -> dict[str, Any]:
    """Return one rank's records as columns, times as the clock gave them; see assemble."""
    hidden = log.records["flags"] & (layout.ALONGSIDE | layout.NO_SPAN) != 0
    index = np.flatnonzero((log.records["state"] != layout.EMPTY) & ~hidden)
    records = log.records[index]
    names = np.array(log.names, dtype=np.str_)
    is_open = records["state"] == layout.OPEN
    last_ns = log.last_ns if ended_ns is None or log.closed else max(log.last_ns, ended_ns)
    end = np.where(is_open, np.maximum(records["start"], last_ns), records["end"])
    columns = {key: records[key] for key in ("lane", "bytes", "peer", "tag", "number", "flags", "state", "link")}
    texts = {key: names[np.minimum(records[key], len(names) - 1)] for key in ("name", "kind", "group", "source")}
    calls = np.isin(texts["kind"], _CALLS) & (records["link"] >= 0)
    columns |= texts | {
        "meaning": np.where(calls, names[np.minimum(np.where(calls, records["link"], 0), len(names) - 1)], ""),
        "rank": np.full(len(records), log.rank),
        "start_ns": records["start"],
        "end_ns": end,
        "index": index,
        "thread": records["thread"],
    }
    return {key: columns[key].astype(dtype) for key, dtype in _DTYPES.items()}


def _tables(rows: dict[str, Any], logs: list[RankLog], origin_ns: int) -> dict[str, dict[str, Any]]:
    span = np.arange(len(rows["rank"]))
    calls = np.flatnonzero(rows["lane"] == Lane.COMMUNICATION)
    sourced = np.flatnonzero(rows["source"] != "")
    row_of = {key: row for row, key in enumerate(zip(rows["rank"].tolist(), rows["index"].tolist(), strict=True))}
    linked = np.flatnonzero((rows["kind"] == "wait") & (rows["link"] >= 0))
    joined = [*zip(*(rows[key][linked].tolist() for key in ("rank", "index", "link")), strict=True)]
    for log in logs:
        others = log.records[log.records["flags"] & layout.ALONGSIDE != 0]
        joined += [(log.rank, *pair) for pair in zip(others["number"].tolist(), others["link"].tolist(), strict=True)]
    pairs = [(row_of.get((rank, wait), -1), row_of.get((rank, call), -1)) for rank, wait, call in joined]
    waits, of = np.array([pair for pair in pairs if min(pair) >= 0], dtype=np.int64).reshape(-1, 2).T
    groups = [describe_group(description) for description in rows["group"][calls].tolist()]
    return {
        "source": {"span": sourced, "line": rows["source"][sourced]},
        "call": {
            "span": calls,
            "group": np.array([name for name, _ in groups], dtype=np.str_),
            "group_size": np.array([len(ranks) for _, ranks in groups], dtype=np.int64),
            "number": rows["number"][calls],
            "tag": rows["tag"][calls],
            "blocking": (rows["flags"][calls] & (layout.BLOCKING | layout.DEVICE_TIME)) == layout.BLOCKING,
            "failed": (rows["flags"][calls] & layout.FAILED) != 0,
            "batched": (rows["flags"][calls] & layout.BATCHED) != 0,
            "thread": rows["thread"][calls],
        },
        "wait": {
            "span": waits,
            "of": of,
            "aside": (rows["flags"][waits] & layout.IN_CALLBACK != 0) | (rows["thread"][waits] != rows["thread"][of]),
        },
        "open": {"span": span[rows["state"] == layout.OPEN]},
        "clock": {
            "rank": np.array([log.rank for log in logs], dtype=np.int64),
            "method": np.array([log.clock_method for log in logs], dtype=np.str_),
            "err_ns": np.array([log.clock_error_ns for log in logs], dtype=np.int64),
            "host": np.array([log.host for log in logs], dtype=np.str_),
            "origin_ns": np.full(len(logs), origin_ns, dtype=np.int64),
        },
        "lifetime": {
            "rank": np.array([log.rank for log in logs], dtype=np.int64),
            "start_ns": np.array([log.started_ns - origin_ns for log in logs], dtype=np.int64),
            "end_ns": np.array([log.last_ns - origin_ns for log in logs], dtype=np.int64),
            "closed": np.array([log.closed for log in logs], dtype=np.bool_),
        },
    }
