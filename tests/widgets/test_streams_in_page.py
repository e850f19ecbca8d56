"""A run with a row for each stream: made of the rows of its lanes, with the same numbers."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

from labkit.timeline.metrics import lane_times
from labkit.timeline.streams import streams
from labkit.widgets.timeline_columns import pack
from tests.widgets.in_page import Evaluate
from tests.widgets.sharded_run import sharded_run

pytestmark = [pytest.mark.in_turn]

SPLIT = """((packed) => {
  const whole = runOf({ ...packed, columns: fromBase64(packed.columns) });
  const state = { ...emptyState(), runs: [whole], folded: false, streams: true };
  state.focus = { run: 0, event: 40 };
  const before = [whole.start[40], whole.label[40]];
  settleStreams({ state });
  const [run] = state.runs;
  const event = state.focus.event;
  const bare = [];
  run.rows.filter(({ lane }) => lane === 1).forEach((row) => {
    for (let s = row.from; s < row.to; s++) eachExposed(run, row, s, (from, to) => bare.push([row.rank, from, to]));
  });
  const textOf = (each) => run.labels[run.label[each]][0];
  const isSorted = (numbers) => numbers.every((each, k) => !k || numbers[k - 1] <= each);
  const found = {
    before, after: [run.start[event], run.label[event]], isSplit: run !== whole,
    rows: run.rows.map(({ rank, lane, stream, first, last }) => [rank, lane, stream ?? "", last - first]),
    sorted: run.rows.every(({ first, last }) => isSorted(run.start.slice(first, last))),
    streams: run.rows.flatMap(({ first, last, stream }) =>
      [...run.start.slice(first, last).keys()].map((k) => streamOf(run, first + k) === (stream ?? ""))),
    numbers: [numbers(whole, 0, whole.span), numbers(run, 0, run.span)], bare,
    held: [...run.held_to].map((to, k) => [textOf(run.held_from[k]), textOf(to), run.held_until[k], run.start[to]]),
    calls: [...run.call_event].map((each) => run.labels[run.label[each]][1]), callsSorted: isSorted(run.call_event),
    told: describe(run, run.held_to[0]).text,
  };
  state.streams = false;
  settleStreams({ state });
  return { ...found, back: [state.runs[0] === whole, state.focus.event] };
})(given)"""


@pytest.fixture
def found(evaluate: Evaluate) -> dict[str, Any]:
    packed = pack(sharded_run(2))
    return dict(evaluate("timeline", SPLIT, given={**packed, "columns": base64.b64encode(packed["columns"]).decode()}))


def test_each_stream_has_a_row_in_which_its_spans_follow_each_other(found: dict[str, Any]) -> None:
    timeline = sharded_run(2)
    names, number = streams(timeline)
    assert names == ["default stream", "copies, stream 1", "stream 2", "default group"]
    rows = [[rank, lane, name] for rank, lane, name, _ in found["rows"] if name]
    assert rows == [[rank, lane, name] for rank in range(2) for lane, name in zip([0, 2, 0, 1], names, strict=True)]
    counts = {(rank, name): count for rank, _, name, count in found["rows"] if name}
    for rank in range(2):
        for each, name in enumerate(names):
            waits = timeline.kind == "wait"
            assert counts[rank, name] == ((number == each) & (timeline.rank == rank) & ~waits).sum()
    assert found["isSplit"] and found["sorted"] and all(found["streams"])


def test_an_event_in_focus_stays_in_focus_and_folding_brings_the_lanes_back(found: dict[str, Any]) -> None:
    assert found["before"] == found["after"]
    assert found["back"] == [True, 40]


def test_what_nothing_hides_adds_up_to_the_tiles_exposed_communication(found: dict[str, Any]) -> None:
    whole, split = found["numbers"]
    assert whole == split
    marked = sum(end - begin for _, begin, end in found["bare"])
    assert marked == pytest.approx(whole["exposed"]) and marked > 0
    times = lane_times(sharded_run(2))
    assert marked == pytest.approx((times.communication_ns - times.hidden_ns).sum())
    assert marked < 0.9 * whole["communication"]  # some of it is hidden


def test_an_event_tells_what_its_stream_waited_for(found: dict[str, Any]) -> None:
    held = sharded_run(2).tables["held"]
    assert len(found["held"]) == len(held["span"]) > 10
    assert all(until == begin for *_, until, begin in found["held"])
    assert {"all_gather_into_tensor", "reduce_scatter_tensor"} <= {to for _, to, *_ in found["held"]}
    waited = found["held"][0][0]
    assert f"for {waited}" in found["told"] and ", on " in found["told"]
    assert found["callsSorted"] and set(found["calls"]) == {"all_gather_into_tensor", "reduce_scatter_tensor"}


def test_a_run_without_streams_is_sent_without_them(found: dict[str, Any]) -> None:
    timeline = sharded_run(2)
    bare = timeline.select(np.ones(len(timeline), dtype=bool))
    del bare.tables["stream"], bare.tables["held"]
    packed = pack(bare)
    assert "streams" not in packed and not {"stream", "held_to"} & set(packed["layout"])
