"""What is not in a profile is absent, and not zero: ranks without one, events without an end, files cut short."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from labkit.errors import ConfigError
from labkit.timeline.profiler import read_profile, read_profiles


def _event(**other: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1.0, "dur": 2.0} | other


def _write(path: Path, events: list[dict[str, Any]], rank: int = 0, world_size: int = 1) -> Path:
    about = {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world_size}, "traceEvents": events}
    path.write_text(json.dumps(about))
    return path


def test_ranks_without_a_profile_are_absent_and_not_idle(tmp_path: Path) -> None:
    kernel = _event(cat="kernel", ts=0.0, dur=9.0)
    one = read_profile(_write(tmp_path / "3.json", [kernel], 3, 128))
    assert one.num_ranks == 128
    said = one.summary()
    assert said.startswith("1 of 128 ranks recorded") and "ranks busy 100 % of the time" in said
    assert "Profiles of rank 3, of 128: 127 ranks are not in them, not idle." in said
    two = read_profiles([_write(tmp_path / f"{rank}.json", [kernel], rank, 4) for rank in (0, 2)])
    assert "ranks busy 100 %" in two.summary() and two.summary().startswith("2 of 4 ranks recorded")
    whole = read_profiles([_write(tmp_path / f"{rank}.json", [kernel], rank, 2) for rank in (0, 1)])
    assert not whole.problems and whole.summary().startswith("2 ranks, ")


def test_events_that_end_before_they_begin_are_left_out_and_counted(tmp_path: Path) -> None:
    torn = [_event(ts=9.0, dur=-1.0), _event(ts=None), {"ph": "X", "ts": 3.0}]
    timeline = read_profile(_write(tmp_path / "some.json", [_event(), *torn]))
    assert len(timeline) == 1
    assert [one.text for one in timeline.problems] == [
        "3 events of rank 0's profile had no begin or ended before that; left out."
    ]


def test_categories_of_older_profilers_are_known(tmp_path: Path) -> None:
    events = [_event(cat="Operator"), _event(cat="Kernel", name="sgemm", tid=7), _event(cat="Memcpy", ts=5.0, tid=7)]
    assert sorted(read_profile(_write(tmp_path / "old.json", events)).kind.tolist()) == ["gpu_memcpy", "kernel", "op"]


@pytest.mark.parametrize("end", [12, -20, -4])
def test_a_compressed_file_that_was_cut_short_is_told_as_that(tmp_path: Path, end: int) -> None:
    path = tmp_path / "torn.json.gz"
    path.write_bytes(
        gzip.compress(json.dumps({"traceEvents": [_event(ts=float(one)) for one in range(99)]}).encode())[:end]
    )
    with pytest.raises(ConfigError, match=r"torn.json.gz is torn"):
        read_profile(path)
