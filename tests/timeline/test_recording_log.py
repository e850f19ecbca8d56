"""The log outlives its rank, never stops it, and says what is missing."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest
import recorded_programs as programs
from recorded_ranks import record_of, run_ranks, start_ranks, stop_ranks

from labkit.launch.recording import RankLog, assemble, read_log
from labkit.launch.recording.event_log import EventLog
from tests.linux import forks


def _until_waiting(path: Path) -> RankLog:
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        log = read_log(path)
        if log.waiting is not None and log.waiting.operation in ("recv", "all_reduce"):
            return log
        time.sleep(0.01)
    raise TimeoutError("the rank never waited")


@pytest.mark.in_turn
def test_a_rank_blocked_in_cpp_says_what_it_waits_for_and_a_killed_one_keeps_its_record(tmp_path: Path) -> None:
    started = start_ranks(programs.blocked_and_killed, 2, tmp_path, tmp_path)
    try:
        alive = _until_waiting(tmp_path / "0.log")
        receiving = alive.waiting
        reducing = _until_waiting(tmp_path / "1.log").waiting
        assert receiving is not None and reducing is not None
        assert (receiving.operation, receiving.peer, receiving.bytes) == ("recv", 1, 1000)
        assert receiving.source.rpartition(":")[0].endswith("recorded_programs.py")
        assert receiving.group_ranks == (0, 1) and receiving.since_ns < time.monotonic_ns()
        assert (reducing.operation, reducing.peer, reducing.bytes, reducing.number) == ("all_reduce", None, 2000, 0)
        (tmp_path / "kill").touch()
        started[1][0].join(30)
        assert started[1][0].exitcode == -9
        dead = read_log(tmp_path / "1.log")
        assert not dead.closed and dead.waiting == reducing
        timeline = assemble([alive, dead])
        still_open = timeline.tables["open"]["span"].tolist()
        assert timeline.rank[still_open].tolist() == [0, 1]
        assert timeline.kind[still_open].tolist() == ["recv", "all_reduce"]
        end_ns = timeline.end_ns[still_open] + timeline.tables["clock"]["origin_ns"][0]
        assert end_ns.tolist() == [alive.last_ns, dead.last_ns]
        assert [problem.kind for problem in timeline.problems] == ["unmatched_recv"]
    finally:
        stop_ranks(started)


def test_a_log_that_is_full_counts_what_it_leaves_out_and_the_rank_goes_on(tmp_path: Path) -> None:
    assert run_ranks(programs.many_calls, 2, tmp_path, 50, capacity=20) == run_ranks(
        programs.many_calls, 2, tmp_path, 50, record=False
    )
    log = read_log(tmp_path / "0.log")
    assert (len(log.records), log.dropped) == (20, 31)  # one record is the beginning of the group
    assert [problem.text for problem in record_of(tmp_path, 2).problems] == [
        f"Rank {rank} made 31 more calls and spans than its record holds; they are not shown." for rank in range(2)
    ]


def test_a_rank_whose_log_cannot_be_made_runs_all_the_same(tmp_path: Path) -> None:
    run_ranks(programs.many_calls, 2, tmp_path / "no such folder", 3)
    timeline = record_of(tmp_path / "no such folder", 2)
    assert len(timeline) == 0
    assert [problem.text for problem in timeline.problems] == [
        f"A rank left no record: {rank}.log: No such file or directory." for rank in range(2)
    ]


def test_a_file_that_is_no_log_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "0.log").write_bytes(b"something else" * 1000)
    assert read_log(tmp_path / "0.log").missing == "0.log is not an event log"
    (tmp_path / "1.log").write_bytes(b"")
    assert read_log(tmp_path / "1.log").rank == -1


def test_a_full_disk_drops_records_and_kills_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = EventLog(tmp_path / "0.log", 0)
    kind = log.intern("all_reduce")
    assert log.begin(1, 1, kind, kind) == 0

    def full(file: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    indices = [log.begin(1, 1, kind, kind) for _ in range(20_000)]
    assert indices[-1] == -1
    log.end(indices[-1], 2, 1)
    kept = sum(index >= 0 for index in indices)
    back = read_log(tmp_path / "0.log")
    assert (len(back.records), back.dropped) == (1 + kept, 20_000 - kept)


def test_threads_write_without_tearing_each_others_records(tmp_path: Path) -> None:
    run_ranks(programs.spans_from_threads, 1, tmp_path, 8, 500)
    timeline = record_of(tmp_path, 1)
    assert len(timeline) == 8 * 500
    for number in range(8):
        mine = timeline.select(timeline.name == f"thread {number}")
        assert mine.kind.tolist() == [f"kind {repeat % 3}" for repeat in range(500)]
        assert (mine.start_ns[1:] >= mine.end_ns[:-1]).all()


@forks
def test_a_forked_child_writes_nothing_into_its_parents_log(tmp_path: Path) -> None:
    run_ranks(programs.spans_in_a_fork, 1, tmp_path)
    assert record_of(tmp_path, 1).name.tolist() == ["parent"]


def test_a_log_takes_only_the_space_it_uses(tmp_path: Path) -> None:
    EventLog(tmp_path / "0.log", 0, capacity=1_000_000).close()
    assert (tmp_path / "0.log").stat().st_blocks * 512 < 3_000_000
    assert read_log(tmp_path / "0.log").closed


def test_a_name_table_that_is_full_loses_names_not_records(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "0.log", 0)
    numbers = [log.intern(f"{number:0900d}") for number in range(1300)]
    assert numbers[-1] == 0 and len(read_log(tmp_path / "0.log").names) == max(numbers) + 1
    assert log.begin(1, 0, numbers[-1], numbers[0]) == 0
