"""torch's flight recorder in the report of a hang: on record for real with gloo, as NCCL writes it with stand-ins."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.flight_recorder.components.types import MatchState, Op

import labkit
from labkit.deadlock import Standing
from labkit.errors import RunTimeout
from labkit.launch import recording
from labkit.launch.recording.flight import FlightWatch, is_read, log_of
from labkit.launch.waits import waiting_of
from labkit.launch.watchdog import Watchdog
from labkit.torch_port.flight_recorder import named_call

LEARNERS = {"name": "train", "filename": "/course/train.py", "line": 7}


def call(name: str, number: int, *, state: str = "scheduled", shape: Sequence[int] = (4,), p2p: bool = False) -> Any:
    """Return a call as torch writes it; `number` counts from 1."""
    return {
        "frames": [{"name": "all_reduce", "filename": torch.__file__, "line": 1}, LEARNERS],
        "record_id": number, "pg_id": 0, "process_group": ("0", "default_pg"), "op_id": number,
        "collective_seq_id": 0 if p2p else number, "p2p_seq_id": number if p2p else 0, "profiling_name": f"nccl:{name}",
        "time_created_ns": 1_000 * number, "input_sizes": [list(shape)], "input_dtypes": ["Float"],
        "output_sizes": [list(shape)], "output_dtypes": ["Float"], "state": state, "retired": state == "completed",
        "time_discovered_started_ns": None, "time_discovered_completed_ns": None, "timeout_ms": 600000, "is_p2p": p2p,
    }  # fmt: skip


def words(*of_ranks: list[Any]) -> list[str]:
    logs = {rank: log_of(rank, [named_call(each, [0, 1]) for each in calls]) for rank, calls in enumerate(of_ranks)}
    waits = [waiting_of(rank, logs) for rank in logs]
    standing = Standing(len(logs), [each for each in waits if each is not None])
    return ["" if each is None else standing.sentence(each) for each in waits]


WHERE = " at train.py, line 7"


def test_a_collective_that_a_rank_has_not_reached_is_named_with_its_line() -> None:
    both = call("all_reduce", 1, state="completed")
    missing = [[both, call("all_reduce", 2, state="started")], [both]]
    assert words(*missing) == [f"rank 0 waits in all_reduce #2 (16 B), which rank 1 has not reached,{WHERE}", ""]


def test_mismatched_collectives_are_named_and_torchs_own_analysis_agrees() -> None:
    mine, other = call("all_reduce", 1), call("_all_gather_base", 1)
    assert words([mine], [other]) == [
        f"rank 0 waits in all_reduce #1 (16 B), where rank 1 is in all_gather_into_tensor instead,{WHERE}",
        f"rank 1 waits in all_gather_into_tensor #1 (16 B), where rank 0 is in all_reduce instead,{WHERE}",
    ]
    ours, theirs = (Op(each, {"0": {0, 1}}, "0") for each in (mine, other))
    assert ours.match(theirs).state is MatchState.COLLECTIVE_TYPE_MISMATCH
    larger = call("all_reduce", 1, shape=(8, 2))
    assert "where rank 1 brings 64 B" in words([mine], [larger])[0]
    assert ours.match(Op(larger, {"0": {0, 1}}, "0")).state is MatchState.SIZE_OR_SYNTAX_MISMATCH


def test_a_message_nobody_receives_is_named_and_one_of_a_batch_ends_with_its_batch() -> None:
    send, receive = call("send 0->1", 1, p2p=True), call("recv 1<-0", 1, p2p=True)
    assert words([send], []) == [f"rank 0 waits in send to rank 1 (16 B){WHERE}", ""]
    assert words([], [receive])[1] == f"rank 1 waits in recv from rank 0 (16 B){WHERE}"
    batch = call("coalesced", 1, state="completed", p2p=True)
    assert words([send, batch], [receive]) == ["", f"rank 1 waits in recv from rank 0 (16 B){WHERE}"]
    assert Op(receive, {"0": {0, 1}}, "0").match(Op(send, {"0": {0, 1}}, "0")).state is MatchState.FULLY_MATCHED


def test_ranks_whose_gpus_wait_for_each_other_are_stuck_by_this_record_alone() -> None:
    logs = {0: log_of(0, [named_call(call("all_reduce", 1), [])]), 1: log_of(1, [named_call(call("broadcast", 1), [])])}
    watchdog = Watchdog(2.0)
    cpu: dict[int, float | None] = {0: 1.0, 1: 1.0}
    assert not watchdog.deadlocked(cpu, logs, 10.0)
    cpu = {0: 3.5, 1: 3.5}  # each turns in a circle while it waits for its GPU
    assert watchdog.deadlocked(cpu, logs, 12.5)
    logs[1] = log_of(1, [named_call(call("all_reduce", 1), [])])
    assert not watchdog.deadlocked(cpu, logs, 12.5)


def test_calls_are_told_once_when_they_have_come_to_rest() -> None:
    heard: list[Any] = []
    status = [0]
    watch = FlightWatch(lambda kind, calls: heard.append(calls), lambda: status[0], lambda: [status[0]])
    for each in (1, 2, 2, 2, 3, 3):
        status[0] = each
        watch.look()
    assert heard == [[2], [3]]


def test_the_record_is_read_of_nccl_and_of_gloo_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCH_FR_BUFFER_SIZE", raising=False)
    assert is_read("cpu:gloo,cuda:nccl") and not is_read("gloo")
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "2000")
    assert is_read("gloo")
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "0")
    assert not is_read("cpu:gloo,cuda:nccl")


@pytest.mark.long
def test_a_hang_that_our_record_was_not_there_for_is_explained_by_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As NCCL's first call is, which makes the communicator before anything is recorded."""
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "2000")

    def work() -> None:
        dist.all_reduce(torch.ones(1))
        with recording.unrecorded():
            if dist.get_rank() == 0:
                dist.all_reduce(torch.ones(4))
            time.sleep(60)

    with pytest.raises(RunTimeout) as caught:
        labkit.run(work, on=labkit.local(2), timeout=2.5)
    assert caught.value.reports[0].startswith(
        "rank 0 waits in all_reduce #2 (16 B), which rank 1 has not reached (by torch's flight recorder)\n"
    )
    assert "dist.all_reduce(torch.ones(4))" in caught.value.reports[0]
    assert caught.value.reports[1].startswith("rank 1 is in no communication call")
