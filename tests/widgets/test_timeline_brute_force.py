"""The page's numbers and its growth beside sums over whole nanoseconds, which know nothing of how it computes."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from labkit.timeline import Timeline
from labkit.timeline.columns import COLUMNS
from labkit.widgets.timeline_columns import pack
from tests.widgets.in_page import Evaluate

SEEDS = 25
KINDS = {
    0: ["span", "span", "matmul"],
    1: ["send", "isend", "recv", "irecv", "rpc_sync", "to_here", "all_reduce", "broadcast", "all_gather", "span"],
    2: ["wait", "span", "rpc_serve"],
}
SENT = ("send", "isend", "rpc_sync", "rpc_async", "remote", "to_here")
FACTORS = {"all_reduce": lambda n: 2 * (n - 1) / n, "all_gather": lambda n: (n - 1) / n, "broadcast": lambda n: 1.0}


def drawn(seed: int) -> Timeline:
    """Return a timeline in which spans nest, touch, overlap, begin together, last 0 ns, late and early."""
    random = np.random.default_rng(seed)
    count, ranks = int(random.integers(1, 90)), int(random.integers(1, 5))
    unit = int(random.choice([1, 3, 2**26, 10**9]))  # the two last: times above 2**32 ns
    ticks = int(random.choice([6, 40, 200]))
    begin = random.integers(0, ticks, count)
    length = random.integers(0, int(random.choice([1, 3, ticks])) + 1, count)
    lane = random.integers(0, 3, count)
    kind = np.array([random.choice(KINDS[each]) for each in lane.tolist()])
    rank = random.integers(0, ranks, count)
    names = random.choice([f"f{number}" for number in range(int(random.choice([1, 5, 400])))], count)
    calls = np.flatnonzero((lane == 1) & (kind != "span"))
    tables = {
        "call": {
            "span": calls, "group": random.choice(["0", "1"], len(calls)), "number": random.integers(0, 6, len(calls)),
            "blocking": np.ones(len(calls), dtype=np.int64),
        }
    }  # fmt: skip
    origin = int(random.choice([0, 10**15]))
    return Timeline(
        rank, lane, begin * unit + origin, (begin + length) * unit + origin, names, kind,
        bytes=random.integers(0, 2**44, count), tables=tables, num_ranks=ranks,
    )  # fmt: skip


def covered(spans: Iterable[tuple[int, int]], t0: int, t1: int) -> int:
    """Return how many whole ns of [t0, t1) lie in a span: between neighbouring edges all ns are alike."""
    inside = [(max(a, t0), min(b, t1)) for a, b in spans if min(b, t1) > max(a, t0)]
    edges = sorted({edge for span in inside for edge in span})
    return sum(b - a for a, b in pairwise(edges) if any(s <= a and b <= e for s, e in inside))


def expected(timeline: Timeline, t0: int, t1: int) -> dict[str, float]:
    """Return the window's numbers, counted span by span."""
    origin = int(timeline.start_ns.min())
    spans = [(s.rank, int(s.lane), s.start_ns - origin, s.end_ns - origin, s.kind, s.bytes) for s in timeline.rows()]
    moves = moved(timeline, spans)
    found = {"compute": 0.0, "communication": 0.0, "busy": 0.0, "blocked": 0.0}
    for rank in range(timeline.num_ranks):
        lanes = [[(a, b) for r, lane, a, b, _, _ in spans if r == rank and lane == 0]]
        lanes.append([moves[row] for row, span in enumerate(spans) if span[0] == rank and span[1] == 1])
        calls = timeline.tables["call"]["span"].tolist()  # each of them blocks
        stood = [span[2:4] for row, span in enumerate(spans) if span[0] == rank and (span[4] == "wait" or row in calls)]
        either = lanes[0] + lanes[1]
        found["blocked"] += covered(stood + either, t0, t1) - covered(either, t0, t1)
        found["compute"] += covered(lanes[0], t0, t1)
        found["communication"] += covered(lanes[1], t0, t1)
        found["busy"] += covered(lanes[0] + lanes[1], t0, t1)
    found["exposed"] = found["busy"] - found["compute"]
    last = t1 >= max(b for _, _, _, b, _, _ in spans)
    begun = [(kind, size) for _, lane, a, _, kind, size in spans if lane == 1 and (t0 <= a < t1 or (last and a >= t0))]
    found["messages"] = sum(kind in SENT for kind, _ in begun)
    found["sent"] = sum(size for kind, size in begun if kind in SENT)
    found["calls"] = sum(kind in FACTORS for kind, _ in begun)
    found["payload"] = sum(size for kind, size in begun if kind in FACTORS)
    together: dict[Any, list[int]] = {}
    table = timeline.tables["call"]
    for row, group, number in zip(*(table[key].tolist() for key in ("span", "group", "number")), strict=True):
        if spans[row][4] in FACTORS:
            together.setdefault((group, number, spans[row][4]), []).append(row)
    bus = took = 0.0
    for (_, _, kind), rows in together.items():
        begin, end = max(spans[row][2] for row in rows), max(spans[row][3] for row in rows)
        if t0 <= begin < t1 and end > begin:
            bus += max(spans[row][5] for row in rows) * FACTORS[kind](len(rows))
            took += end - begin
    found["busbw"] = bus / took * 1e9 if took else -1
    return found


def moved(timeline: Timeline, spans: list[Any]) -> list[tuple[int, int]]:
    """Return of each span when bytes moved: of a collective from when the last member came that came by its end."""
    found = [(span[2], span[3]) for span in spans]
    table = timeline.tables["call"]
    keys = [*zip(*(table[key].tolist() for key in ("span", "group", "number")), strict=True)]
    for row, group, number in keys:
        if spans[row][4] not in FACTORS:
            continue
        members = [r for r, g, n in keys if (g, n) == (group, number) and spans[r][4] == spans[row][4]]
        came = max(spans[r][2] for r in members if spans[r][2] <= spans[row][3])
        found[row] = (max(came, spans[row][2]), spans[row][3])
    return found


def sendable(timeline: Timeline, **more: Any) -> dict[str, Any]:
    packed = pack(timeline, **more)
    return packed | {"columns": base64.b64encode(packed["columns"]).decode()}


def rows_of(timeline: Timeline, rows: Any) -> Timeline:
    """Return these spans without tables, as they are followed while a run is under way."""
    columns = {key: getattr(timeline, key)[rows] for key in COLUMNS}
    return Timeline(**columns, num_ranks=timeline.num_ranks)


NUMBERS = """asked.map(([packed, windows]) => {
  const run = decode({ ...packed, columns: fromBase64(packed.columns) });
  return windows.map(([t0, t1]) => numbers(run, t0, t1));
})"""


@pytest.mark.in_turn
def test_numbers_are_the_nanoseconds_spans_cover(evaluate: Evaluate) -> None:
    timelines = [drawn(seed) for seed in range(SEEDS)]
    windows = []
    for seed, timeline in enumerate(timelines):
        random, span = np.random.default_rng(seed), timeline.makespan_ns
        edges = np.unique(np.concatenate((timeline.start_ns, timeline.end_ns))) - timeline.start_ns.min()
        some = [sorted(random.choice(edges, 2).tolist()) for _ in range(4)]
        some += [sorted(random.integers(0, span + 2, 2).tolist()) for _ in range(3)]
        windows.append([[0, span], *some])
    asked = [[sendable(timeline), window] for timeline, window in zip(timelines, windows, strict=True)]
    answers = evaluate("timeline", NUMBERS, asked=asked)
    for seed, (timeline, window, answer) in enumerate(zip(timelines, windows, answers, strict=True)):
        for (t0, t1), found in zip(window, answer, strict=True):
            found["busbw"] = -1 if found["busbw"] is None else found["busbw"]
            wanted = expected(timeline, t0, t1)
            assert {key: found[key] for key in wanted} == pytest.approx(wanted, rel=1e-9, abs=1e-3), (seed, t0, t1)


GROW = """((read) => {
  const text = (run) => Array.from(run.label, (l) => run.labels[l].join("|"));
  const columns = ["start", "end", "duration", "bytes", "category", "segmentStart", "segmentEnd", "covered", "owner"];
  const busy = ({ busy: { begins, ends, sums } }) => [[...begins], [...ends], [...sums].slice(0, begins.length + 1)];
  const shown = (run) => JSON.stringify([
    columns.map((name) => [...run[name]]), text(run), run.rows, [...run.owned].sort(),
    run.sums.map((s) => [[...s.bytes], [...s.calls]]),
    [...run.ranks.values()].sort((a, b) => a.rank - b.rank).map(busy),
  ]);
  return given.map(([whole, parts]) => {
    const grown = parts.map(read).reduce((a, b) => merge(a, b)), at_once = read(whole);
    return [shown(at_once), shown(grown), at_once.span, grown.span];
  });
})((packed) => decode({ ...packed, columns: fromBase64(packed.columns) }))"""


@pytest.mark.in_turn
def test_a_run_grown_piece_by_piece_is_the_run_read_at_once(evaluate: Evaluate) -> None:
    asked = []
    for seed in range(SEEDS):
        random, timeline = np.random.default_rng(seed), drawn(seed)
        cuts = np.sort(random.integers(0, len(timeline) + 1, int(random.integers(0, 9))))
        parts = [part for part in np.split(np.arange(len(timeline)), cuts) if len(part)]
        asked.append([sendable(rows_of(timeline, part), origin_ns=0) for part in (np.arange(len(timeline)), *parts)])
    answers = evaluate("timeline", GROW, given=[[whole, parts] for whole, *parts in asked])
    for seed, (whole, grown, *spans) in enumerate(answers):
        assert whole == grown and spans[0] == spans[1], seed


MANY = """(([run, ...parts]) => {
  const grown = parts.reduce((a, b) => merge(a, b));
  const kept = (run) => run.label.every((label, i) => run.labels[label][0] === `f${i}`);
  return [kept(run), kept(grown), run.labels.length, grown.labels.length];
})(given.map((packed) => decode({ ...packed, columns: fromBase64(packed.columns) })))"""


@pytest.mark.parametrize("count", [300, pytest.param(66_000, marks=pytest.mark.long)])
def test_more_labels_than_a_narrow_column_holds_keep_their_names(evaluate: Evaluate, count: int) -> None:
    at = np.arange(count)
    names = [f"f{number}" for number in at]
    timeline = Timeline(at * 0, at * 0, at, at + 1, names, ["span"] * count)
    parts = [timeline, *(rows_of(timeline, part) for part in np.array_split(at, 2))]
    answer = evaluate("timeline", MANY, given=[sendable(part, origin_ns=0) for part in parts])
    assert answer == [True, True, count, count]
