"""Lesson 06 keeps its contract: topics, exercises, points, stubs; and its answers do what they promise."""

from __future__ import annotations

import json
import math
import re
import runpy
from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

import labkit
from labkit.lessons.source import Lesson, load
from labkit.servers.training import Pace, gradient_of, loss_of, ring_seconds, train
from labkit.timeline import Timeline
from labkit.timeline.span import Span
from tests.checks.lesson_cells import namespace
from tests.lessons.contract import LessonContract

SOURCE = Path(__file__).parents[2] / "solutions" / "06_parameter_server.py"


class TestContract(LessonContract):
    number = "06"
    topics: ClassVar = {
        "the post of lesson 00": r"the post, mended",
        "calls": r"torch\.distributed\.rpc",
        "a future": r"async_execution",
        "synchronous": r"the synchronous server",
        "straggler": r"enter the straggler",
        "asynchronous": r"asynchronous sgd",
        "staleness": r"staleness",
        "stable up to": r"2 sin\(π / \(4τ \+ 2\)\)",
        "stale-synchronous": r"ho et al\., 2013",
        "backup workers": r"chen et al\., 2016",
        "a recorded run": r'labkit\.recorded\("lost_update"\)',
        "all three compared": r"all three compared",
        "loss against time and against gradients": r"\*per gradient\*.* \*per second\*",
        "what waiting counts": r"is the share of their time that workers wait",
        "server or ring": r"server or ring",
        "a design": r'labkit\.challenge\("staleness_policy"',
        "push and pull overlap": r"both directions are busy at once",
        "without a lock": r"push without a lock",
        "a worker goes": r"a worker that just goes",
        "spare machines": r"byteps",
        "steps and versions": r"far above a bound of 3",
        "maintenance": r"maintenance mode",
        "the next lesson": r"07_keys_rows_failures",
    }
    slides = (8, 25)
    least_guesses = 5


@pytest.fixture(scope="module")
def lesson() -> Lesson:
    return load(SOURCE)


def test_what_staleness_costs_is_what_the_text_says(lesson: Lesson) -> None:
    text = " ".join(cell.source for cell in lesson.cells if cell.kind == "markdown").replace("\n", " ")
    cost = {n: 1 - n * math.sin(math.pi / (4 * (n - 1) + 2)) for n in (8, 64)}
    assert [round(1 / each) for each in cost.values()] == [6, 5]
    assert "For eight workers staleness costs a sixth of the largest learning rate**, for 64 a fifth" in text
    assert f"all but one step in {round(0.9**-100, -3):,.0f}" in text


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    return namespace(number="06")


def test_the_slide_of_server_or_ring_says_what_the_function_returns(lesson: Lesson, answers: dict[str, Any]) -> None:
    from labkit.hardware import find_link

    (table,) = [cell.source for cell in lesson.cells if cell.source.startswith("## Eight servers come near a ring")]
    link = find_link("ethernet_100g")
    numbers = (link.latency_ns / 1e9, link.share * link.bytes_per_second)
    rows = {row: int(ms) for row, ms in re.findall(r"^\| (ring|\d servers?) \| (\d+) \|$", table, re.MULTILINE)}
    assert rows.pop("ring") == round(1e3 * ring_seconds(1e8, 8, *numbers))
    for row, milliseconds in rows.items():
        assert milliseconds == round(1e3 * answers["server_seconds"](1e8, 8, int(row.split()[0]), *numbers))


@pytest.mark.in_turn
@pytest.mark.parametrize("bound", [0, 1, 3])
def test_under_a_bound_no_worker_runs_further_ahead(answers: dict[str, Any], bound: int) -> None:
    pace = Pace(slow=((2, 4.0),), stalls=0.2)
    make = partial(answers["BoundedServer"], lr=0.1, bound=bound)
    run = labkit.run(train, make, 60, pace, on=labkit.virtual(5), init=False, echo=False)
    clocks = dict.fromkeys(range(4), 0)
    for update in run.results[0].updates:
        clocks[update.worker] += 1
        if update.version_applied < 50:  # then workers begin to leave
            assert max(clocks.values()) - min(clocks.values()) <= bound + 1
    assert sum(clocks.values()) >= 60


def test_the_synchronous_server_trains_as_one_process_does(answers: dict[str, Any]) -> None:
    make = partial(answers["SyncServer"], lr=0.7)
    run = labkit.run(train, make, 5, Pace(stalls=0.3), on=labkit.virtual(6), init=False, echo=False)
    import torch

    weight = torch.zeros(20)
    for step in range(5):
        weight -= 0.7 * torch.stack([gradient_of(weight, worker, step) for worker in range(5)]).mean(0)
    assert run.results[0].seen[-1].loss == pytest.approx(loss_of(weight), rel=1e-5)


FOLDERS = {
    "SHOWN": SOURCE.parents[1] / "labkit" / "exercises" / "parameter_server" / "lost_update",
    "KEPT_BACK": SOURCE.parent / "hidden" / "parameter_server" / "lost_update",
}


@pytest.mark.parametrize("which", FOLDERS)
def test_the_recorded_run_is_what_the_virtual_cluster_does_and_one_gradient_is_lost(which: str) -> None:
    program = runpy.run_path(str(FOLDERS["KEPT_BACK"] / "record.py"))
    arrived, fresh = program["record"](program[which])
    assert arrived == 4 * program["PUSHES"] - 1
    assert _spans(Timeline.load(FOLDERS[which] / "recording.json")) == _spans(fresh)


def _spans(timeline: Timeline) -> list[Span]:
    """Return what is on the timeline, but for bytes: those of a call depend on the name of its module."""
    return [replace(span, bytes=0) for span in timeline.rows()]


@pytest.mark.parametrize("which", FOLDERS)
def test_the_key_names_the_one_push_whose_version_another_one_read_too(which: str) -> None:
    key = json.loads((FOLDERS[which] / "key.json").read_text(encoding="utf-8"))["answers"]
    read = defaultdict(list)
    for span in Timeline.load(FOLDERS[which] / "recording.json").rows():
        if found := re.fullmatch(r"rank (\d): read (\d+)", span.name):
            read[int(found[2])].append((span.end_ns, int(found[1])))
    (twice,) = [version for version, pushes in read.items() if len(pushes) > 1]
    assert (twice, min(read[twice])[1]) == (key["version"], key["rank"])
