"""What a rank calls is what its log holds: kinds, bytes, peers, begin and end."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
import recorded_programs as programs
from recorded_ranks import record_of, run_ranks

from labkit.timeline import COMMUNICATION, HOST, REGION


@pytest.mark.in_turn
def test_every_collective_is_recorded_once_in_order_with_the_size_nccl_tests_prints(tmp_path: Path) -> None:
    order = run_ranks(programs.every_collective, 2, tmp_path)[0]
    timeline = record_of(tmp_path, 2)
    for rank in range(2):
        calls = [call for call in timeline.collectives() if call.rank == rank]
        assert [call.kind for call in calls] == order
        assert [call.sequence for call in calls] == list(range(len(order)))
        size = {call.kind: call.bytes for call in calls}
        assert {size[kind] for kind in ("all_reduce", "broadcast", "reduce")} == {32}
        assert {size[kind] for kind in order[3:11]} == {64}
        assert {size[kind] for kind in ("barrier", "monitored_barrier")} == {0}
    assert timeline.tables["call"]["blocking"].all()
    assert not len(timeline.spans(kind="wait"))
    assert timeline.problems == ()


def test_messages_name_global_ranks_and_share_a_flow_also_in_a_subgroup(tmp_path: Path) -> None:
    run_ranks(programs.messages_in_a_subgroup, 3, tmp_path)
    timeline = record_of(tmp_path, 3)
    sent = [(m.src, m.dst, m.bytes, m.kind, m.sequence) for m in timeline.messages()]
    assert sent == [(1, 2, 40, "send", 0), (1, 2, 80, "isend", 1), (1, 2, 120, "send", 2)]
    received = {m.bytes: m.received for m in timeline.messages()}
    assert received == {40: 1, 80: 0, 120: 2}
    for flow in np.unique(timeline.flow[timeline.flow >= 0]):
        ends = timeline.flow == flow
        assert sorted(timeline.rank[ends]) == [1, 2] and len(set(timeline.bytes[ends])) == 1
    assert timeline.problems == ()


def test_a_receive_from_any_rank_learns_who_sent(tmp_path: Path) -> None:
    run_ranks(programs.messages_in_a_subgroup, 3, tmp_path)
    received = record_of(tmp_path, 3).spans(rank=2, kind="recv")
    assert received.peer.tolist() == [1, 1]
    assert received.bytes.tolist() == [40, 120]


@pytest.mark.in_turn
def test_batched_messages_are_isend_and_irecv_with_a_wait_each(tmp_path: Path) -> None:
    run_ranks(programs.batched_ring, 3, tmp_path)
    timeline = record_of(tmp_path, 3)
    assert [(m.src, m.dst, m.bytes) for m in timeline.messages()] == [(0, 1, 100), (1, 2, 100), (2, 0, 100)]
    for rank in range(3):
        assert timeline.spans(rank=rank, lane=COMMUNICATION).kind.tolist() == ["isend", "irecv"]
    waits = timeline.tables["wait"]
    assert timeline.kind[waits["of"]].tolist() == ["isend", "irecv"] * 3
    assert (timeline.end_ns[waits["of"]] == timeline.end_ns[waits["span"]]).all()


def test_an_asynchronous_collective_ends_when_it_is_complete_not_when_it_is_waited_for(tmp_path: Path) -> None:
    seen_ns = run_ranks(programs.overlapped, 2, tmp_path, tmp_path)
    timeline = record_of(tmp_path, 2)
    origin_ns = int(timeline.tables["clock"]["origin_ns"][0])
    for rank in range(2):
        (call,) = timeline.spans(rank=rank, kind="all_reduce").rows()
        (wait,) = timeline.spans(rank=rank, kind="wait").rows()
        assert call.end_ns <= seen_ns[rank] - origin_ns < wait.start_ns
        assert wait.lane == HOST
        (region,) = timeline.spans(rank=rank, lane=REGION).rows()
        assert call.end_ns < region.end_ns <= wait.start_ns


def test_a_blocking_collective_lasts_from_its_call_until_the_last_rank_joined(tmp_path: Path) -> None:
    called_ns = run_ranks(programs.late_rank, 2, tmp_path, tmp_path)
    timeline = record_of(tmp_path, 2)
    origin_ns = int(timeline.tables["clock"]["origin_ns"][0])
    (early,) = timeline.spans(rank=0, kind="all_reduce").rows()
    (late,) = timeline.spans(rank=1, kind="all_reduce").rows()
    assert early.start_ns < called_ns[1] - origin_ns <= late.start_ns < early.end_ns
    assert timeline.tables["clock"]["err_ns"].tolist() == [0, 0]


def test_a_buffer_written_before_wait_is_noted_and_one_written_after_is_not(tmp_path: Path) -> None:
    run_ranks(programs.buffer_reused, 2, tmp_path)
    timeline = record_of(tmp_path, 2)
    (problem,) = timeline.problems
    assert (problem.kind, problem.rank) == ("changed_in_flight", 0)
    assert (timeline.rank[problem.row], timeline.kind[problem.row]) == (0, "isend")
    assert problem.text.startswith("Rank 0 wrote into the buffer of its isend to rank 1 (recorded_programs.py, line ")
    assert problem.text.endswith(") before wait() returned.")


@pytest.mark.in_turn
@pytest.mark.parametrize("numel", [0, 1, 1000, 100_003])
def test_writing_beside_the_buffer_in_flight_is_right_and_into_it_is_wrong(tmp_path: Path, numel: int) -> None:
    run_ranks(programs.chunks_of_one_storage, 2, tmp_path, numel, False)
    assert record_of(tmp_path, 2).problems == ()
    run_ranks(programs.chunks_of_one_storage, 2, tmp_path, numel, True)
    changed = [(problem.kind, problem.rank) for problem in record_of(tmp_path, 2).problems]
    assert changed == ([("changed_in_flight", 0), ("changed_in_flight", 1)] if numel else [])


def test_a_forgotten_wait_and_a_send_nobody_takes_are_named(tmp_path: Path) -> None:
    run_ranks(programs.never_waited, 2, tmp_path)
    timeline = record_of(tmp_path, 2)
    assert [(p.kind, p.rank) for p in timeline.problems] == [("unmatched_send", 0), ("not_waited", 0)]
    assert [int(timeline.flow[p.row]) >= 0 for p in timeline.problems] == [False, True]
    unmatched, forgotten = (str(problem) for problem in timeline.problems)
    assert unmatched.startswith("Rank 0 posted isend of 8 B to rank 1 (recorded_programs.py, line ")
    assert unmatched.endswith("and rank 1 has no receive for it.")
    assert forgotten.startswith("Rank 0 never waited for its isend to rank 1 ")
    assert timeline.kind[timeline.tables["open"]["span"]].tolist() == ["isend", "isend"]


def test_ranks_that_take_the_same_bytes_for_other_things_are_named(tmp_path: Path) -> None:
    run_ranks(programs.disagreeing, 2, tmp_path)
    problems = record_of(tmp_path, 2).problems
    assert [(problem.kind, problem.rank) for problem in problems] == [("mismatch", 1)] * 3
    line = programs.disagreeing.__code__.co_firstlineno
    message, *collectives = sorted(str(problem).replace("recorded_programs.py, line ", "") for problem in problems)
    assert message == f"Rank 0 sent float64 to rank 1 ({line + 6}), which takes the bytes for int64 ({line + 8})."
    said = [" called ".join(text.split(". All ranks ")[0].split(" called ")[1:]) for text in collectives]
    where = "as collective 1 of its group, where rank 0 called"
    assert sorted(said) == [
        f"all_reduce: MAX of float32, 4 B ({line + 4}) {where} all_reduce: SUM of float32, 4 B ({line + 4})",
        f"broadcast: int32, 8 B ({line + 3}) {where} broadcast: float32, 8 B ({line + 3})",
    ]


def test_each_call_knows_the_line_of_the_program_it_came_from(tmp_path: Path) -> None:
    run_ranks(programs.batched_ring, 2, tmp_path)
    timeline = record_of(tmp_path, 2)
    text = Path(programs.__file__).read_text(encoding="utf-8").splitlines()
    line_of = dict(zip(timeline.tables["source"]["span"].tolist(), timeline.tables["source"]["line"], strict=True))
    sends = np.flatnonzero(timeline.kind == "isend").tolist()
    for row in sends:
        path, _, line = line_of[row].rpartition(":")
        assert path.endswith("recorded_programs.py")
        assert "batch_isend_irecv" in text[int(line) - 1]


def test_named_regions_have_a_lane_of_their_own_and_an_exception_ends_them(tmp_path: Path) -> None:
    run_ranks(programs.named_regions, 1, tmp_path)
    spans = {span.name: (span.lane, span.kind) for span in record_of(tmp_path, 1).rows()}
    assert spans == {
        "read data": (REGION, "span"),
        "my all_reduce": (REGION, "span"),
        "step 3": (REGION, "backward"),
        "breaks": (REGION, "span"),
    }
    assert record_of(tmp_path, 1).collectives() == []


def test_times_are_those_of_the_hosts_monotonic_clock(tmp_path: Path) -> None:
    before_ns = time.monotonic_ns()
    run_ranks(programs.named_regions, 2, tmp_path)
    after_ns = time.monotonic_ns()
    timeline = record_of(tmp_path, 2)
    origin_ns = int(timeline.tables["clock"]["origin_ns"][0])
    assert before_ns < origin_ns and origin_ns + timeline.makespan_ns < after_ns
