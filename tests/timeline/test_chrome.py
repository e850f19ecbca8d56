"""The Chrome trace, held to what makes Perfetto show it right."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from small_timelines import exchange

from labkit.timeline import COMMUNICATION, COMPUTE, Timeline
from labkit.timeline.chrome import events, nesting_rows


def _trace(timeline: Timeline, folder: Path) -> list[dict[str, Any]]:
    timeline.to_chrome(folder / "trace.json")
    found: list[dict[str, Any]] = json.loads((folder / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    return found


def test_ranks_are_processes_from_1000_named_and_sorted(tmp_path: Path) -> None:
    trace = _trace(exchange(), tmp_path)
    named = {e["pid"]: e["args"]["name"] for e in trace if e["name"] == "process_name"}
    order = {e["pid"]: e["args"]["sort_index"] for e in trace if e["name"] == "process_sort_index"}
    assert named == {1000: "rank 0", 1001: "rank 1"}
    assert order == {1000: 0, 1001: 1}


def test_rows_have_numbers_of_their_own_over_all_ranks_and_keep_the_order_of_lanes(tmp_path: Path) -> None:
    trace = _trace(exchange(), tmp_path)
    rows = [(e["pid"], e["tid"]) for e in trace if e["name"] == "thread_name"]
    assert len({tid for _, tid in rows}) == len(rows) == 4
    assert {(e["pid"], e["tid"]) for e in trace if e["ph"] == "X"} == set(rows)
    order = [e["args"]["sort_index"] for e in trace if e["name"] == "thread_sort_index" and e["pid"] == 1000]
    assert order == sorted(order) and len(order) == 3


def test_names_lead_with_their_category_and_times_are_microseconds(tmp_path: Path) -> None:
    slices = [e for e in _trace(exchange(), tmp_path) if e["ph"] == "X"]
    assert [e["name"] for e in slices] == ["compute/forward", "comm/isend", "wait/wait", "comm/recv"]
    assert (slices[1]["ts"], slices[1]["dur"]) == (1000.0, 1000.0)
    assert slices[1]["args"] == {"kind": "isend", "bytes": 4000, "peer": 1, "source": "a.py:1"}


def test_an_arrow_leaves_inside_the_send_and_arrives_inside_the_receive(tmp_path: Path) -> None:
    trace = _trace(exchange(), tmp_path)
    (leaves,) = (e for e in trace if e["ph"] == "s")
    (arrives,) = (e for e in trace if e["ph"] == "f")
    assert leaves["id"] == arrives["id"] and arrives["bp"] == "e" and leaves["ts"] <= arrives["ts"]
    for arrow, kind in ((leaves, "isend"), (arrives, "recv")):
        (slice_,) = (e for e in trace if e["ph"] == "X" and e["args"]["kind"] == kind)
        assert (arrow["pid"], arrow["tid"]) == (slice_["pid"], slice_["tid"])
        assert slice_["ts"] <= arrow["ts"] < slice_["ts"] + slice_["dur"]


def test_a_send_nobody_received_has_no_arrow() -> None:
    lonely = Timeline([0], [COMMUNICATION], [0], [5], ["isend"], ["isend"], [8], [1], [-1])
    assert not [e for e in events(lonely) if e["ph"] in "sf"]


def test_a_span_without_duration_can_still_be_seen() -> None:
    instant = Timeline([0], [COMPUTE], [7], [7], ["mark"], ["span"])
    (slice_,) = (e for e in events(instant) if e["ph"] == "X")
    assert slice_["dur"] > 0


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 12)), max_size=12))
def test_slices_of_one_row_nest_or_are_apart(pairs: list[tuple[int, int]]) -> None:
    start = np.array([begin for begin, _ in pairs], dtype=np.int64)
    end = start + np.array([length for _, length in pairs], dtype=np.int64)
    by_row = defaultdict(list)
    for row, begin, finish in zip(nesting_rows(start, end).tolist(), start.tolist(), end.tolist(), strict=True):
        by_row[row].append((begin, finish))
    for members in by_row.values():
        for a, b in ((a, b) for a in members for b in members):
            apart = a[1] <= b[0] or b[1] <= a[0]
            nested = (a[0] <= b[0] and b[1] <= a[1]) or (b[0] <= a[0] and a[1] <= b[1])
            assert apart or nested
