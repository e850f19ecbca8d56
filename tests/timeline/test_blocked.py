"""Waiting is not work, and a name changes no number: in a virtual cluster, between real processes, by hand."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

import labkit
from labkit.timeline import COMMUNICATION, COMPUTE, HOST, REGION, Timeline, metrics
from labkit.timeline.critical_path import critical_path, in_words
from labkit.timeline.transfers import moving

MB = 1_000_000


def _run(fn: Any, ranks: int, *args: Any) -> Timeline:
    return labkit.run(fn, *args, on=labkit.virtual(ranks, gpu="h100", link="nvlink4")).timeline


def to_root_and_back() -> None:
    """Sum at rank 0 and send the sum to all, one after the other."""
    rank, size = dist.get_rank(), dist.get_world_size()
    mine, other = torch.empty(MB, device="meta"), torch.empty(MB, device="meta")
    for peer in range(1, size):
        if rank == 0:
            dist.recv(other, src=peer)
        elif rank == peer:
            dist.send(mine, dst=0)
    for peer in range(1, size):
        if rank == 0:
            dist.send(mine, dst=peer)
        elif rank == peer:
            dist.recv(mine, src=0)


def test_ranks_that_wait_for_the_root_are_blocked_and_not_busy() -> None:
    timeline = _run(to_root_and_back, 8)
    busy, blocked, whole = metrics.busy_ns(timeline), metrics.wait_ns(timeline), timeline.makespan_ns
    assert blocked[0] == 0
    ends = np.array([timeline.spans(rank=rank).end_ns.max() for rank in range(8)])
    assert (busy + blocked == ends).all()  # whoever does neither has ended
    assert (busy[1:] < 0.2 * whole).all() and blocked[7] > 0.7 * whole
    assert f"blocked {round(100 * blocked.mean() / whole)} % of the time" in timeline.summary()


def two_into_one_port() -> None:
    """Rank 0 awaits two messages at once, which come through one port."""
    tensor = [torch.empty(MB, device="meta") for _ in range(2)]
    if dist.get_rank():
        dist.send(tensor[0], dst=0)
    else:
        for work in [dist.irecv(tensor[src - 1], src=src) for src in (1, 2)]:
            work.wait()


def test_a_message_whose_port_is_taken_is_blocked_until_the_port_is_free() -> None:
    timeline = _run(two_into_one_port, 3)
    calls = moving(timeline)
    first, second = (row for row in np.flatnonzero(timeline.kind == "irecv").tolist())
    (begin,), (end,) = calls.start_ns[calls.row == second], calls.end_ns[calls.row == second]
    latency = labkit.virtual(2, gpu="h100", link="nvlink4").cluster.link.latency_ns
    assert begin == timeline.end_ns[first] - latency  # the first one's last byte has passed the port
    assert end == timeline.end_ns[second]
    assert metrics.wait_ns(timeline)[0] == 0  # something moves all the time


def _named(name: str, named: bool) -> AbstractContextManager[object]:
    return labkit.span(name) if named else nullcontext()


def ring(named: bool) -> None:
    """Reduce-scatter round a ring, then a matrix product under an all_reduce."""
    rank, size = dist.get_rank(), dist.get_world_size()
    chunks = [torch.empty(MB, device="meta") for _ in range(size)]
    with _named("reduce-scatter", named):
        for step in range(size - 1):
            got = torch.empty(MB, device="meta")
            ops = [
                dist.P2POp(dist.isend, chunks[(rank - step) % size], (rank + 1) % size),
                dist.P2POp(dist.irecv, got, (rank - 1) % size),
            ]
            with _named(f"step {step}", named):
                for work in dist.batch_isend_irecv(ops):
                    work.wait()
            chunks[(rank - step - 1) % size] += got
    with _named("overlap", named):
        work = dist.all_reduce(chunks[0], async_op=True)
        torch.empty(4096, 4096, device="meta") @ torch.empty(4096, 4096, device="meta")
        work.wait()


def numbers(timeline: Timeline) -> dict[str, Any]:
    """Return every number that metrics read off a timeline."""
    times = metrics.lane_times(timeline)
    return {
        "makespan": timeline.makespan_ns,
        "compute": times.compute_ns.tolist(),
        "communication": times.communication_ns.tolist(),
        "either": times.either_ns.tolist(),
        "blocked": times.blocked_ns.tolist(),
        "blocked share": metrics.blocked_share(timeline).tolist(),
        "blocked error": metrics.wait_error_ns(timeline).tolist(),
        "hidden": times.hidden_ns.tolist(),
        "hidden share": metrics.hidden_communication_share(timeline),
        "busy": metrics.busy_share(timeline).tolist(),
        "sent": metrics.bytes_sent(timeline).tolist(),
        "received": metrics.bytes_received(timeline).tolist(),
        "payload": metrics.collective_payload_bytes(timeline).tolist(),
        "remote": metrics.remote_call_bytes(timeline).tolist(),
        "collectives": repr(metrics.collective_timings(timeline)),
        "messages": timeline.messages(),
        "path": in_words(timeline, critical_path(timeline)),
        "sentence": timeline.summary().split(", ")[:8],
    }


def test_names_change_no_number_of_a_virtual_run() -> None:
    _run(ring, 4, False)  # the first run of a process holds more memory than the next
    plain, named = _run(ring, 4, False), _run(ring, 4, True)
    assert (named.lane == REGION).sum() == 4 * 5
    assert numbers(named) == numbers(plain)
    assert 0 < metrics.hidden_communication_share(named) < 1


def test_names_change_no_number_of_a_profile_or_of_a_record_by_hand() -> None:
    timeline = Timeline(
        [0, 0, 0, 1, 1], [REGION, COMPUTE, COMMUNICATION, REGION, COMMUNICATION], [0, 5, 8, 1, 12],
        [90, 20, 30, 60, 30], ["all", "mm", "recv", "late", "send"], ["span", "op", "recv", "span", "send"],
        bytes=[0, 0, 4, 0, 4], peer=[-1, -1, 1, -1, 0], flow=[-1, -1, 0, -1, 0],
        tables={"wait": {"span": np.array([], int), "of": np.array([], int)}},
    )  # fmt: skip
    plain = timeline.select(timeline.lane != REGION)
    assert numbers(timeline) == numbers(plain)
    assert timeline.makespan_ns == 25


def late_sender(named: bool) -> None:
    """Rank 1 sends what rank 0 has long been waiting for, and comes late to the all_reduce."""
    tensor = torch.zeros(1000)
    with _named("all of it", named):
        dist.barrier()
        if dist.get_rank() == 1:
            with _named("late", named):
                for _ in range(200):
                    torch.ones(400, 400) @ torch.ones(400, 400)
            dist.send(tensor, dst=0)
        else:
            dist.recv(tensor, src=1)


@pytest.mark.in_turn
def test_real_calls_are_blocked_until_the_one_they_meet_is_made(tmp_path: Path) -> None:
    timeline = labkit.run(late_sender, True, on=labkit.local(2)).timeline
    (receive,) = np.flatnonzero(timeline.kind == "recv").tolist()
    (send,) = np.flatnonzero(timeline.kind == "send").tolist()
    calls = moving(timeline)
    assert calls.start_ns[calls.row == receive].tolist() == [timeline.start_ns[send]]
    blocked_ns = int(timeline.start_ns[send] - timeline.start_ns[receive])
    assert blocked_ns > 0
    assert metrics.wait_ns(timeline)[0] >= blocked_ns
    assert numbers(timeline) == numbers(timeline.select(timeline.lane != REGION))
    timeline.save(tmp_path / "run.npz")
    assert numbers(Timeline.load(tmp_path / "run.npz")) == numbers(timeline)


def test_less_than_clocks_may_be_off_is_not_told_from_nothing_and_more_says_by_how_much() -> None:
    def pair(late_ns: int) -> Timeline:
        return Timeline(
            [0, 1], [COMMUNICATION] * 2, [0, late_ns], [1000, 1000], ["recv", "send"], ["recv", "send"],
            peer=[1, 0], flow=[0, 0],
            tables={
                "call": {"span": np.array([0, 1]), "blocking": np.array([True, True])},
                "clock": {"rank": np.array([0, 1]), "err_ns": np.array([30, 50])},
            },
        )  # fmt: skip

    assert metrics.wait_ns(pair(80)).tolist() == [0, 0]
    assert metrics.wait_ns(pair(400)).tolist() == [400, 0]
    assert metrics.wait_error_ns(pair(400)).tolist() == [80, 0]
    assert "blocked 20 % of the time ± 4 points for the clocks (each rank 0 to 40 %)" in pair(400).summary()


def test_a_remote_call_is_blocked_while_it_is_served() -> None:
    timeline = Timeline(
        [0, 1], [COMMUNICATION, HOST], [0, 20], [100, 70], ["f", "f"], ["rpc_sync", "rpc_serve"], peer=[1, 0],
        flow=[3, 3], tables={"call": {"span": np.array([0]), "blocking": np.array([True])}},
    )  # fmt: skip
    assert metrics.wait_ns(timeline).tolist() == [50, 0]
    assert metrics.busy_ns(timeline).tolist() == [50, 0]


def test_a_call_that_ended_before_the_other_side_came_did_not_wait_for_it() -> None:
    timeline = Timeline(
        [0, 1], [COMMUNICATION] * 2, [0, 50], [10, 60], ["send", "recv"], ["send", "recv"], flow=[0, 0],
        tables={"call": {"span": np.array([0, 1]), "blocking": np.array([True, True])}},
    )  # fmt: skip
    assert metrics.wait_ns(timeline).tolist() == [0, 0]


def test_a_deadlocked_rank_is_blocked_from_its_call_on() -> None:
    def both_receive() -> None:
        dist.recv(torch.empty(4), src=1 - dist.get_rank())

    try:
        _run(both_receive, 2)
    except labkit.errors.RunTimeout as error:
        timeline = error.timeline
    assert metrics.busy_ns(timeline).tolist() == [0, 0]


def trained() -> None:
    """One step of training, its forward pass named."""
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with labkit.span("F0"):
        loss = model(torch.ones(8, 64)).sum()
    loss.backward()
    optimizer.step()
    torch.ones(8).add(1)


def test_operators_inherit_the_phase_they_ran_in() -> None:
    from labkit.timeline.phases import PHASES, phase_codes

    timeline = _run(trained, 1)
    phase = np.array(PHASES)[phase_codes(timeline)]
    computes = timeline.lane == COMPUTE
    regions = timeline.spans(lane=REGION)
    inside = computes & (timeline.start_ns >= regions.start_ns[0]) & (timeline.end_ns <= regions.end_ns[0])
    assert set(phase[inside]) == {"forward"} and inside.any()
    after = computes & (timeline.start_ns >= regions.end_ns[0])
    order = [each for each in dict.fromkeys(phase[after].tolist()) if each]
    assert order == ["backward", "optimizer"] and phase[computes][-1] == ""
