"""The page's side of the timeline, in a page: its own claims, and its shares beside Python's."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

from labkit.timeline import Timeline
from labkit.timeline.span import Lane
from labkit.widgets.palette import BLOCKED, CATEGORIES
from labkit.widgets.pixel_shares import share_matrix, snap_edges
from labkit.widgets.static_timeline import picture_bars
from labkit.widgets.timeline_columns import pack, pack_path
from tests.timeline.small_timelines import exchange
from tests.widgets.in_page import Evaluate, Modules


@pytest.mark.in_turn
def test_what_the_timelines_functions_claim_holds(modules: Modules) -> None:
    found = modules.run("timeline_claims.js")
    assert not found["failed"] and found["passed"] > 15


def random_timeline(seed: int, *, nested: bool) -> Timeline:
    """Return ranks with compute, communication and waits; nested regions too if asked."""
    random = np.random.default_rng(seed)
    num_ranks, per_rank = 3, 60
    duration = random.lognormal(5, 1.5, (num_ranks, per_rank)).astype(np.int64)
    gap = random.integers(0, 300, duration.shape)
    end = np.cumsum(duration + gap, axis=1)
    start = end - duration
    if nested:
        end[:, ::7] += random.integers(0, 2000, end[:, ::7].shape)
    lane = random.integers(0, 3, duration.shape)
    kind = np.array(["span", "all_reduce", "wait"])[lane]
    return Timeline(
        np.repeat(np.arange(num_ranks), per_rank), lane.ravel(), start.ravel() + 10**15, end.ravel() + 10**15,
        random.choice(["forward", "backward 1", "step"], duration.size), kind.ravel(),
        bytes=random.integers(0, 2**50, duration.size),
    )  # fmt: skip


def _asked(timeline: Timeline) -> list[Any]:
    """Return the packed timeline and the windows to compute shares for."""
    packed = pack(timeline)
    packed["columns"] = base64.b64encode(packed["columns"]).decode()
    span = timeline.makespan_ns
    return [packed, [[0, span, 97], [span // 3, span // 2, 50], [span // 3, span // 3 + 7, 14]]]


SHARES = """asked.map(([packed, windows]) => {
  const run = decode({ ...packed, columns: fromBase64(packed.columns) });
  const categories = packed.categories.length;
  return windows.map(([t0, t1, columns]) => {
    const empty = () => new Float64Array(columns * categories);
    const shares = run.rows.map((row) => [...shareMatrix(run, row, t0, t1, columns, categories, empty())]);
    const snapped = shares.map((row) => [...snapEdges(row.slice(), columns, categories)]);
    return { numbers: numbers(run, t0, t1), shares, snapped };
  });
})"""
PATH = """((path) => [[...path.path_end], [...path.path_to], path.text])(
  unpack({ ...given, columns: fromBase64(given.columns) }))"""


def test_it_reads_the_critical_path(evaluate: Evaluate) -> None:
    packed = pack_path(exchange())
    given = {**packed, "columns": base64.b64encode(packed["columns"]).decode()}
    ends, ranks, text = evaluate("timeline", PATH, given=given)
    assert ends[-1] == 2_000_000 and ranks[-1] in (0, 1) and text == packed["text"]


@pytest.mark.in_turn
def test_its_shares_and_numbers_are_those_of_the_static_picture(evaluate: Evaluate) -> None:
    timelines = [random_timeline(seed, nested=seed % 2 == 1) for seed in range(6)]
    asked = [_asked(timeline) for timeline in timelines]
    answers = evaluate("timeline", SHARES, asked=asked)
    for timeline, (packed, windows), answer in zip(timelines, asked, answers, strict=True):
        origin = int(timeline.start_ns.min())
        for (t0, t1, columns), found in zip(windows, answer, strict=True):
            covered = {0: 0.0, 1: 0.0}
            places = [(rank, Lane(lane)) for rank, lane, _ in packed["rows"]]
            bars = picture_bars(timeline, places)
            rows = zip(packed["rows"], found["shares"], found["snapped"], bars, strict=True)
            for (_, lane, _), shares, snapped, shown in rows:
                window = (t0 + origin, t1 + origin)
                expected = share_matrix(*shown, len(CATEGORIES), window, columns)
                painted = np.array(shares).reshape(columns, -1).T
                assert painted == pytest.approx(expected, abs=1e-6)
                on_pixels = np.array(snapped).reshape(columns, -1).T
                assert on_pixels == pytest.approx(snap_edges(painted), abs=1e-6)
                if lane in covered:
                    covered[lane] += np.delete(expected, BLOCKED, axis=0).sum() * (t1 - t0) / columns
            assert found["numbers"]["compute"] == pytest.approx(covered[0], abs=1e-3)
            assert found["numbers"]["communication"] == pytest.approx(covered[1], abs=1e-3)
