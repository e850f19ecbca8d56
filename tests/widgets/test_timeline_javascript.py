"""The page's side of the timeline, run by node: its own tests, and its shares beside Python's."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labkit.timeline import Timeline
from labkit.widgets.palette import CATEGORIES, categories_of
from labkit.widgets.scripts import javascript
from labkit.widgets.shares import share_matrix
from labkit.widgets.timeline_columns import pack, pack_path
from labkit.widgets.timeline_view import SCRIPTS
from tests.timeline.small_timelines import exchange

NODE = shutil.which("node")
NAMES = (
    "decode merge shareMatrix numbers hit snap nextEdge memoryColumns tickStep timeText bytesText percentText toChrome"
    " toSvg unpack categoryTimes"
)

needs_node = pytest.mark.skipif(NODE is None, reason="no node on this machine: apt install nodejs")


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """The widget's program as the page unpacks it, with its inner functions to be called."""
    path = tmp_path / "timeline.mjs"
    path.write_text(
        "\n".join(map(javascript, SCRIPTS)) + f"\nexport {{ {NAMES.replace(' ', ', ')} }};\n", encoding="utf-8"
    )
    return path


def _node(*arguments: str, module: Path, given: str = "") -> str:
    assert NODE is not None
    environment = {**os.environ, "LABKIT_MODULE": module.as_uri()}
    ended = subprocess.run(
        [NODE, *arguments], input=given, capture_output=True, text=True, timeout=120, env=environment
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@needs_node
def test_its_own_tests_pass(module: Path) -> None:
    said = _node("--test", "--test-reporter=tap", str(Path(__file__).with_name("timeline.test.mjs")), module=module)
    assert "# fail 0" in said and "# pass 0" not in said


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


SHARES = """
import { readFileSync } from "node:fs";
const m = await import(process.env.LABKIT_MODULE);
const answers = JSON.parse(readFileSync(0)).map(([packed, windows]) => {
  const run = m.decode({ ...packed, columns: Buffer.from(packed.columns, "base64") });
  const categories = packed.categories.length;
  return windows.map(([t0, t1, columns]) => {
    const empty = () => new Float64Array(columns * categories);
    const shares = run.rows.map((row) => [...m.shareMatrix(run, row, t0, t1, columns, categories, empty())]);
    return { numbers: m.numbers(run, t0, t1), shares };
  });
});
process.stdout.write(JSON.stringify(answers));
"""


PATH = """
import { readFileSync } from "node:fs";
const m = await import(process.env.LABKIT_MODULE), given = JSON.parse(readFileSync(0));
const path = m.unpack({ ...given, columns: Buffer.from(given.columns, "base64") });
process.stdout.write(JSON.stringify([[...path.path_end], [...path.path_to], path.text]));
"""


@needs_node
def test_it_reads_the_critical_path(module: Path) -> None:
    packed = pack_path(exchange())
    given = json.dumps({**packed, "columns": base64.b64encode(packed["columns"]).decode()})
    ends, ranks, text = json.loads(_node("--input-type=module", "-e", PATH, module=module, given=given))
    assert ends[-1] == 2_000_000 and ranks[-1] in (0, 1) and text == packed["text"]


@needs_node
def test_its_shares_and_numbers_are_those_of_the_static_picture(module: Path) -> None:
    timelines = [random_timeline(seed, nested=seed % 2 == 1) for seed in range(6)]
    asked = [_asked(timeline) for timeline in timelines]
    answers = json.loads(_node("--input-type=module", "-e", SHARES, module=module, given=json.dumps(asked)))
    for timeline, (packed, windows), answer in zip(timelines, asked, answers, strict=True):
        category = categories_of(timeline)
        origin = int(timeline.start_ns.min())
        for (t0, t1, columns), found in zip(windows, answer, strict=True):
            covered = {0: 0.0, 1: 0.0}
            for (rank, lane, count), shares in zip(packed["rows"], found["shares"], strict=True):
                mine = (timeline.rank == rank) & (timeline.lane == lane)
                assert count == mine.sum()
                window = (t0 + origin, t1 + origin)
                spans = timeline.start_ns[mine], timeline.end_ns[mine], category[mine]
                expected = share_matrix(*spans, len(CATEGORIES), window, columns)
                painted = np.array(shares).reshape(columns, -1).T
                assert painted == pytest.approx(expected, abs=1e-6)
                if lane in covered:
                    covered[lane] += expected.sum() * (t1 - t0) / columns
            assert found["numbers"]["compute"] == pytest.approx(covered[0], abs=1e-3)
            assert found["numbers"]["communication"] == pytest.approx(covered[1], abs=1e-3)
