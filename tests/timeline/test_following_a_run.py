"""Reading the record while ranks write it: every span is told once, when it has ended."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import labkit
from labkit import worlds
from labkit.launch.recording import layout, read_log
from labkit.launch.recording.event_log import EventLog
from labkit.launch.recording.follow import Follower
from labkit.timeline import COMMUNICATION, COMPUTE, Timeline
from labkit.widgets import growing


def _begin(log: EventLog, name: str, start_ns: int) -> int:
    return log.begin(start_ns, COMPUTE, log.intern("span"), log.intern(name))


def test_a_span_is_told_when_it_has_ended_and_once(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "log", rank=1)
    follower = Follower(num_ranks=2)
    origin = read_log(tmp_path / "log").started_ns

    def new() -> list[tuple[str, int, int, int]]:
        found = follower.new([read_log(tmp_path / "log")])
        assert found.num_ranks == 2
        return [(span.name, span.rank, span.start_ns, span.end_ns) for span in found.rows()]

    assert new() == []
    outer = _begin(log, "outer", origin + 10)
    inner = _begin(log, "inner", origin + 20)
    assert new() == []
    log.end(inner, origin + 30, COMPUTE)
    assert new() == [("inner", 1, 20, 30)]
    assert new() == []
    log.end(outer, origin + 40, COMPUTE)
    assert new() == [("outer", 1, 10, 40)]
    assert layout.DONE == 2
    log.close()


def test_a_watched_run_shows_its_spans_before_it_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ranks take their next step when the last one has been shown."""

    class Shown:
        def __init__(self) -> None:
            self.parts: list[Timeline] = []
            self.whole: Any = None

        def add(self, spans: Timeline) -> None:
            self.parts.append(spans)
            for rank, name in ((span.rank, span.name) for span in spans.rows()):
                (tmp_path / f"{name} of {rank}").touch()

        def finish(self, timeline: Timeline | None) -> None:
            self.whole = timeline

    shown = Shown()
    monkeypatch.setattr(worlds, "draw", {"is_live": True, "growing": shown}.get)

    def _steps() -> None:
        import os
        import time

        for number in range(3):
            with labkit.span(f"step {number}"):
                time.sleep(0.001)
            while number < 2 and not (tmp_path / f"step {number} of {os.environ['RANK']}").exists():
                time.sleep(0.01)

    run = labkit.run(_steps, on=labkit.local(2, device="cpu"), watch=True, echo=False)
    assert shown.whole is run.timeline and run.timeline is not None
    told = [(span.rank, span.name) for part in shown.parts for span in part.rows()]
    assert len(told) == len(set(told)) and set(told) <= {(span.rank, span.name) for span in run.timeline.rows()}
    assert (0, "step 0") in told and len([part for part in shown.parts if len(part)]) >= 2


def test_without_anybody_looking_a_run_is_not_watched() -> None:
    assert labkit.run(lambda: 1, on=labkit.local(1, device="cpu"), watch=True, echo=False).results == [1]


def test_a_run_under_way_shows_when_a_rank_stands_still_and_says_what_it_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message of rank 0 comes after 90 of the 100 ns for which rank 1 waits for it."""
    monkeypatch.setattr(growing, "display", lambda *_, **__: SimpleNamespace(update=lambda *_, **__: None))
    monkeypatch.setattr(growing, "put_out", lambda view: None)
    calls = {"group": np.array(["all"]), "number": np.array([0]), "tag": np.array([0]), "blocking": np.array([True])}
    shown = growing.GrowingTimeline()
    for rank, kind, start in ((0, "send", 90), (1, "recv", 0)):
        table = {"call": {"span": np.array([0]), **calls}}
        part = Timeline(
            [rank], [COMMUNICATION], [start], [100], [kind], [kind], [8], [1 - rank], tables=table, num_ranks=2
        )
        shown.add(part)
    (whole,) = shown.view.runs
    assert whole["blocked"] == [[0, 0], [1, 1]] and whole["title"].startswith("running")
    kind, at, length = whole["layout"]["blocked_end"]
    assert np.frombuffer(whole["columns"], kind, length, at).tolist() == [90]
