"""Memory of a timeline: curves, peaks, files, Chrome traces, and the sentence."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from labkit.errors import ConfigError
from labkit.timeline import COMPUTE, Timeline
from labkit.timeline.memory import (
    CATEGORIES,
    has_memory,
    held_over_time,
    memory_curve,
    memory_peaks,
    peak_memory_bytes,
)

ACTIVATIONS, PARAMETERS = CATEGORIES.index("activations"), CATEGORIES.index("parameters")
ROWS = [  # rank, time, category, bytes
    (0, 0, PARAMETERS, 100),
    (0, 10, ACTIVATIONS, 50),
    (0, 20, ACTIVATIONS, 400),  # taken and given back at one time
    (0, 20, ACTIVATIONS, 0),
    (1, 0, PARAMETERS, 300),
]


def _timeline() -> Timeline:
    columns = np.array(ROWS).T
    memory = dict(zip(("rank", "time_ns", "category", "bytes"), columns, strict=True))
    peak = {
        "rank": np.array([0, 1]), "time_ns": np.array([20, 0]), "bytes": np.array([500, 300]),
        "operator": np.array(["mm", "empty"]), "capacity": np.array([1000, 1000]),
    }  # fmt: skip
    return Timeline([0, 1], [COMPUTE] * 2, [0, 0], [30, 30], ["mm"] * 2, ["operator"] * 2,
                    tables={"memory": memory, "memory_peak": peak})  # fmt: skip


def test_peaks_are_those_of_all_categories_together_of_one_and_of_the_rank_that_held_most() -> None:
    timeline = _timeline()
    assert [peak_memory_bytes(timeline, rank) for rank in (0, 1, None)] == [500, 300, 500]
    assert [peak_memory_bytes(timeline, 0, name) for name in ("parameters", "activations", "buffers")] == [100, 400, 0]
    first, second = memory_peaks(timeline)
    assert (first.time_ns, first.operator, first.by_category) == (20, "mm", {"activations": 400, "parameters": 100})
    assert second.by_category == {"parameters": 300}


def test_a_curve_is_what_is_held_from_each_time_on() -> None:
    times, held = memory_curve(_timeline(), 0)
    assert list(zip(times.tolist(), held.tolist(), strict=True)) == [(0, 100), (10, 150), (20, 500), (20, 100)]


def test_it_survives_a_file(tmp_path: Path) -> None:
    _timeline().save(tmp_path / "run.npz")
    loaded = Timeline.load(tmp_path / "run.npz")
    assert peak_memory_bytes(loaded) == 500 and memory_peaks(loaded) == memory_peaks(_timeline())


def test_chrome_shows_a_counter_for_each_rank_with_the_most_at_each_time(tmp_path: Path) -> None:
    _timeline().to_chrome(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    counters = [event for event in trace if event["ph"] == "C"]
    assert [(event["pid"], event["ts"], event["args"]) for event in counters] == [
        (1000, 0.0, {"parameters": 100, "activations": 0}),
        (1000, 0.01, {"parameters": 100, "activations": 50}),
        (1000, 0.02, {"parameters": 100, "activations": 400}),
        (1001, 0.0, {"parameters": 300}),
    ]
    assert [time for time, _ in held_over_time(_timeline(), 0)] == [0, 10, 20]


def test_the_sentence_says_the_most_memory() -> None:
    assert "peak memory 300 B to 500 B" in _timeline().summary()


def test_a_timeline_without_memory_says_so() -> None:
    empty = Timeline([0], [COMPUTE], [0], [1], ["x"], ["x"])
    assert not has_memory(empty) and "memory" not in empty.summary()
    with pytest.raises(ConfigError, match=r"only runs on labkit.virtual\(\) record it"):
        peak_memory_bytes(empty)
    with pytest.raises(ConfigError, match="no rank 7"):
        memory_curve(_timeline(), 7)
    with pytest.raises(ConfigError, match="No kind of memory is called 'weights'; use one of other, activations"):
        peak_memory_bytes(_timeline(), 0, "weights")
