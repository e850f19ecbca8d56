"""The timeline of a virtual run: the same record as of real processes, in virtual time, the same every time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist

import labkit
from labkit.errors import RunTimeout
from labkit.hardware import Device, Link
from labkit.timeline import Timeline
from labkit.timeline.metrics import wait_ns
from labkit.timeline.span import Lane

# One byte takes 1 ns, a message 1 us; an operator 100 ns at least, 1 ns for 4 bytes, 1 ns for 10 operations.
LINK = Link("plain", 1e9, 1_000, "one byte a nanosecond", "1 us")
DEVICE = Device("plain", 10**9, 4e9, {"float32": 1e10}, "pcie4", "round numbers", 100, "chosen", 1.0, 1.0, "chosen")


def _run(fn: object, world_size: int = 2, **more: object) -> Timeline:
    world = labkit.virtual(world_size, gpu=DEVICE, link=LINK, **more)  # type: ignore[arg-type]
    run = labkit.run(fn, on=world, echo=False)  # type: ignore[arg-type]
    assert run.timeline is not None
    return run.timeline


def exchange() -> None:
    rank, value = dist.get_rank(), torch.ones(1_000)
    if rank == 0:
        dist.send(value, 1)
    else:
        value += 1
        dist.recv(value, 0)
    work = dist.isend(value, 1 - rank, tag=3)
    dist.irecv(torch.zeros(1_000), 1 - rank, tag=3).wait()
    work.wait()
    dist.all_reduce(value)


def test_a_message_begins_when_both_ends_are_there_and_takes_its_closed_form() -> None:
    timeline = _run(exchange)
    (send,), (receive,) = (list(timeline.spans(kind=kind).rows()) for kind in ("send", "recv"))
    # Rank 1 first makes 1 000 floats, which is 100 ns at least, and adds: 8 000 bytes at 4 bytes a nanosecond.
    ones_ns, add_ns = 1_000, 2_000
    assert (send.start_ns, receive.start_ns) == (ones_ns, ones_ns + add_ns)
    assert (send.end_ns, receive.end_ns) == (receive.start_ns + 4_000, receive.start_ns + 4_000 + 1_000)
    assert send.flow == receive.flow >= 0 and (send.peer, receive.peer) == (1, 0) and send.bytes == 4_000


def test_the_record_answers_what_that_of_real_processes_answers() -> None:
    virtual = _run(exchange)
    real = labkit.run(exchange, on=labkit.local(2, device="cpu"), echo=False).timeline
    assert real is not None
    assert virtual.messages() == real.messages() and virtual.collectives() == real.collectives()
    assert virtual.problems == real.problems == ()
    assert set(virtual.tables) >= set(real.tables)
    for name in ("call", "source", "wait"):
        # Which messages NCCL would launch together is told of real calls alone.
        assert set(virtual.tables[name]) >= set(real.tables[name]) - {"batched"}, name

    def calls(timeline: Timeline) -> list[object]:
        table, lanes = timeline.tables["call"], Lane.COMMUNICATION
        rows = table["span"].tolist()
        assert all(timeline.lane[row] == lanes for row in rows)
        keys = ("tag", "number", "group_size", "blocking", "failed")
        return sorted(
            (int(timeline.rank[row]), str(timeline.kind[row]), *(int(table[key][at]) for key in keys))
            for at, row in enumerate(rows)
        )

    assert calls(virtual) == calls(real)


def test_an_operator_takes_the_longer_of_arithmetic_and_memory() -> None:
    def work() -> None:
        a, b = torch.ones(100, 100), torch.ones(100, 100)
        a @ b  # 2e6 operations: 200 us; 120 000 bytes: 30 us
        a.view(-1)  # a view is free
        a.add_(b)  # 120 000 bytes: 30 us
        torch.ones(1)  # a launch

    rows = list(_run(work, 1).spans(lane=Lane.COMPUTE).rows())
    assert [(row.name, row.duration_ns) for row in rows] == [
        ("ones", 10_000), ("ones", 10_000), ("mm", 200_000), ("add_", 30_000), ("ones", 100)
    ]  # fmt: skip


def test_a_straggler_is_slow_at_computing_and_everybody_waits_for_it() -> None:
    def step() -> None:
        value = torch.ones(100, 100)
        value @ value
        dist.all_reduce(value)

    even, uneven = _run(step, 4), _run(step, 4, slow={2: 3.0})
    assert int(even.spans(kind="operator").end_ns.max()) * 3 == int(uneven.spans(rank=2, kind="operator").end_ns.max())
    ends = {int(row.end_ns) for row in uneven.spans(kind="all_reduce").rows()}
    assert len(ends) == 1 and ends.pop() > 3 * 200_000


def test_computation_overlaps_what_is_posted_and_not_yet_waited_for() -> None:
    def overlap() -> None:
        value, other = torch.ones(100, 100), torch.ones(100, 100)
        work = dist.all_reduce(value, async_op=True)
        other @ other
        work.wait()

    timeline = _run(overlap)
    (reduce,) = timeline.spans(rank=0, kind="all_reduce").rows()
    (product,) = (row for row in timeline.spans(rank=0).rows() if row.name == "mm")
    assert reduce.start_ns <= product.start_ns and product.end_ns > reduce.start_ns
    assert timeline.makespan_ns < reduce.duration_ns + product.duration_ns + 25_000


def _several(groups: int) -> list[int]:
    def several() -> None:
        group = dist.new_group([0, 1])
        works = [dist.all_reduce(torch.ones(1_000), async_op=True, group=g) for g in (None, None, group)[:groups]]
        for work in works:
            work.wait()

    return _run(several).spans(rank=0, kind="all_reduce").end_ns.tolist()  # type: ignore[no-any-return]


def test_collectives_of_one_group_run_one_after_the_other() -> None:
    first, second = _several(2)
    assert first == 1_000 + 4_000 + 2_000  # made at 1 us; 2(N-1)/N of 4 000 bytes; two steps
    assert second == first + 4_000 + 2_000


def test_collectives_of_two_groups_share_the_ports() -> None:
    first, second, other = _several(3)
    # The other group's waits for the first one's bytes, not for its latency; the second then waits for both.
    assert (first, other, second) == (7_000, 5_000 + 4_000 + 2_000, 9_000 + 4_000 + 2_000)


def test_labkit_span_records_a_region_in_virtual_time() -> None:
    def named() -> None:
        with labkit.span("forward"):
            torch.ones(100, 100) @ torch.ones(100, 100)
        with labkit.span("read", kind="host"):
            pass

    forward, read = _run(named, 1).spans(kind="span").rows()
    assert (forward.name, forward.lane, forward.duration_ns) == ("forward", Lane.REGION, 220_000)
    assert read.lane == Lane.REGION and read.duration_ns == 0


def test_labkit_span_still_does_nothing_outside_a_rank() -> None:
    with labkit.span("outside"):
        pass


def test_a_run_says_in_one_line_what_it_was() -> None:
    run = labkit.run(exchange, on=labkit.virtual(2), echo=False)
    assert repr(run).startswith("Run(2 ranks on virtual/h100, ") and "0x" not in repr(run)
    assert repr(labkit.virtual(16)) == "VirtualWorld(16 x h100, nvlink4 in 2 nodes over ib_ndr)"


@pytest.mark.parametrize("size", [4, 16])
def test_a_ring_of_messages_takes_the_closed_form_of_the_ring(size: int) -> None:
    def ring() -> None:
        rank, world = dist.get_rank(), dist.get_world_size()
        chunk, got = torch.empty(1_000), torch.empty(1_000)
        for _ in range(2 * (world - 1)):
            ops = [dist.P2POp(dist.isend, chunk, (rank + 1) % world), dist.P2POp(dist.irecv, got, (rank - 1) % world)]
            for work in dist.batch_isend_irecv(ops):
                work.wait()

    timeline = _run(ring, size, gpus_per_node=size)
    assert timeline.makespan_ns == 2 * (size - 1) * (1_000 + 4_000)
    assert np.all(timeline.spans(kind="irecv").end_ns - timeline.spans(kind="irecv").start_ns == 5_000)


def test_the_timeline_is_saved_drawn_and_summed_up(tmp_path: Path) -> None:
    timeline = _run(exchange)
    timeline.save(tmp_path / "run.npz")
    assert Timeline.load(tmp_path / "run.npz").makespan_ns == timeline.makespan_ns
    timeline.to_chrome(tmp_path / "run.json")
    assert "2 ranks" in timeline.summary()


def _rank_0_forgets_to_send() -> None:
    weight, got = torch.ones(256, 256), torch.empty(100)
    if dist.get_rank() == 0:
        for _ in range(4):
            weight @ weight
        dist.irecv(got, src=1)  # nobody waits for it
    else:
        dist.recv(got, src=dist.get_rank() - 1)


def test_a_rank_that_waits_for_ever_is_blocked_until_the_last_rank_ended() -> None:
    with pytest.raises(RunTimeout) as raised:
        labkit.run(_rank_0_forgets_to_send, on=labkit.virtual(3))
    timeline = raised.value.timeline
    ends = timeline.tables["lifetime"]["end_ns"]
    assert len(set(ends.tolist())) == 1
    for rank in (1, 2):
        (row,) = np.flatnonzero((timeline.rank == rank) & (timeline.kind == "recv"))
        assert timeline.end_ns[row] == ends[rank]
        assert wait_ns(timeline)[rank] == ends[rank] - timeline.start_ns[row] > ends[rank] // 2


def test_a_call_that_nobody_waits_for_keeps_no_rank_alive() -> None:
    def program() -> None:
        if dist.get_rank() == 0:
            dist.irecv(torch.empty(100), src=1)
        else:
            torch.ones(256, 256) @ torch.ones(256, 256)

    first, second = labkit.run(program, on=labkit.virtual(2)).timeline.tables["lifetime"]["end_ns"]
    assert first < second
