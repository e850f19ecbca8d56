"""What NCCL and CUDA do to hangs, deaths and times. Never seen to pass: no GPU was at hand (``make test-gpu``)."""

from __future__ import annotations

import os
import signal
import time
from statistics import median
from typing import Any

import pytest
import torch
import torch.distributed as dist
from gpu_marks import marked, one_gpu, two_gpus

import labkit
from labkit.errors import RankFailed, RunTimeout


def on_gpus(count: int) -> Any:
    return labkit.local(count, device="cuda")


def timeline_of(fn: Any, count: int) -> labkit.Timeline:
    timeline = labkit.run(fn, on=on_gpus(count)).timeline
    assert timeline is not None
    return timeline


def several_calls() -> None:
    tensor = torch.ones(1000, device=labkit.device())
    for _ in range(20):
        dist.all_reduce(tensor)
    torch.cuda.synchronize()


@marked(one_gpu)
def test_the_first_call_on_record_does_not_hold_the_communicators_creation() -> None:
    calls = timeline_of(several_calls, 1).spans(kind="all_reduce")
    lasted = (calls.end_ns - calls.start_ns).tolist()
    assert lasted[0] < 10 * median(lasted) + 2_000_000


@marked(one_gpu)
def test_a_span_lasts_as_long_as_the_kernel_inside_it() -> None:
    def sleeping() -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with labkit.span("kernel"):
            begin.record()
            torch.cuda._sleep(200_000_000)
            end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end)

    run = labkit.run(sleeping, on=on_gpus(1))
    assert run.timeline is not None
    (span,) = [each for each in run.timeline.rows() if each.name == "kernel"]
    assert (span.end_ns - span.start_ns) / 1e6 == pytest.approx(run.results[0], rel=0.1)


@marked(one_gpu)
def test_ten_calls_and_an_exception_leave_ten_spans() -> None:
    def failing() -> None:
        tensor = torch.ones(1000, device=labkit.device())
        for _ in range(10):
            dist.all_reduce(tensor)
        torch.cuda.synchronize()
        raise ZeroDivisionError("after ten")

    with pytest.raises(RankFailed, match="after ten") as caught:
        labkit.run(failing, on=on_gpus(1))
    calls = caught.value.timeline.spans(kind="all_reduce")
    assert len(calls) == 10
    assert not set(range(10)) & set(calls.tables["open"]["span"].tolist())


@marked(one_gpu)
def test_a_gpus_memory_is_free_after_a_kill() -> None:
    def filling() -> None:
        torch.empty(1 << 30, dtype=torch.uint8, device=labkit.device())
        os.kill(os.getpid(), signal.SIGKILL)

    torch.cuda.synchronize()
    free_before = torch.cuda.mem_get_info()[0]
    with pytest.raises(RankFailed, match="SIGKILL"):
        labkit.run(filling, on=on_gpus(1))
    until = time.monotonic() + 5
    while torch.cuda.mem_get_info()[0] < free_before - (64 << 20) and time.monotonic() < until:
        time.sleep(0.05)
    assert torch.cuda.mem_get_info()[0] >= free_before - (64 << 20)


@marked(one_gpu)
def test_a_module_comes_back_with_its_parameters() -> None:
    module = labkit.run(lambda: torch.nn.Linear(3, 2).to(labkit.device()), on=on_gpus(1)).results[0]
    assert len(list(module.parameters())) == 2
    assert {each.device.type for each in module.parameters()} == {"cpu"}


@marked(one_gpu)
def test_recording_gives_no_temporarys_memory_away_while_it_is_in_flight() -> None:
    def temporaries() -> float:
        total = torch.zeros((), device=labkit.device(), dtype=torch.float64)
        for step in range(500):
            work = dist.all_reduce(torch.full((1 << 20,), float(step), device=labkit.device()), async_op=True)
            noise = torch.full((1 << 20,), -1.0, device=labkit.device())  # takes the same memory if it is free
            mine = torch.full((1 << 20,), float(step), device=labkit.device())
            other = dist.all_reduce(mine, async_op=True)
            work.wait()
            other.wait()
            total += mine[-1].double() + noise[0].double()
        return total.item()

    assert labkit.run(temporaries, on=on_gpus(1)).results[0] == sum(step - 1 for step in range(500))


@marked(one_gpu)
@pytest.mark.parametrize("visible", ["0", "uuid", ""])
def test_visible_devices_are_taken_by_index_by_uuid_and_none(visible: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"GPU-{torch.cuda.get_device_properties(0).uuid}" if visible == "uuid" else visible
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", name)
    run = labkit.run(lambda: str(labkit.device()), on=labkit.local(1))
    if name:
        assert run.results == ["cuda:0"]
    else:
        assert run.backend in ("gloo/cpu", "nccl/cuda"), "this process counted its GPUs before the variable was set"


@marked(two_gpus)
def test_a_missing_collective_is_named_with_its_line_within_five_seconds() -> None:
    def one_leaves() -> None:
        tensor = torch.ones(1000, device=labkit.device())
        dist.all_reduce(tensor)
        if dist.get_rank() == 0:
            dist.all_reduce(tensor)  # rank 1 never comes
            tensor[0].item()
        else:
            while True:
                dist.get_rank() and time.sleep(0.1)

    begin = time.monotonic()
    with pytest.raises(RunTimeout, match=r"rank 0 waits in all_reduce #\d+ .*which rank 1 has not reached") as caught:
        labkit.run(one_leaves, on=on_gpus(2), timeout=5)
    assert "one_leaves" in str(caught.value)
    assert time.monotonic() - begin < 30


@marked(two_gpus)
def test_mismatched_collectives_are_named_within_seconds() -> None:
    def mismatched() -> None:
        tensor = torch.ones(1000, device=labkit.device())
        if dist.get_rank() == 0:
            dist.all_reduce(tensor)
        else:
            dist.broadcast(tensor, 1)
            dist.broadcast(tensor, 0)
        tensor[0].item()

    with pytest.raises(RunTimeout, match="Deadlock") as caught:
        labkit.run(mismatched, on=on_gpus(2), timeout=60)
    assert "all_reduce" in str(caught.value)
    assert "broadcast" in str(caught.value)


@marked(two_gpus)
@pytest.mark.parametrize("how", ["raises", "is killed"])
def test_one_ranks_end_ends_the_other_that_waits_for_its_gpu(how: str) -> None:
    def one_ends() -> None:
        tensor = torch.ones(1000, device=labkit.device())
        dist.all_reduce(tensor)
        if dist.get_rank() == 1:
            if how == "raises":
                raise ZeroDivisionError("mine")
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(tensor)
        tensor[0].item()

    with pytest.raises(RankFailed) as caught:
        labkit.run(one_ends, on=on_gpus(2))
    assert caught.value.rank == 1


@marked(two_gpus)
@pytest.mark.parametrize("minutes", [0, 5])
def test_no_message_arrives_before_it_was_sent_beyond_the_error_exported(minutes: int) -> None:
    def ring() -> None:
        mine, other = torch.ones(1 << 20, device=labkit.device()), torch.empty(1 << 20, device=labkit.device())
        rank, size = dist.get_rank(), dist.get_world_size()
        for number in range(50):
            if number == 25:  # clocks drift apart meanwhile
                time.sleep(60 * minutes)
            send = dist.P2POp(dist.isend, mine, (rank + 1) % size)
            receive = dist.P2POp(dist.irecv, other, (rank - 1) % size)
            for work in dist.batch_isend_irecv([send, receive]):
                work.wait()
        torch.cuda.synchronize()

    timeline = timeline_of(ring, 2)
    error_ns = timeline.tables["clock"]["err_ns"].sum()
    assert error_ns > 0
    sends, receives = (timeline.spans(kind=kind) for kind in ("isend", "irecv"))
    arrived = dict(zip(receives.flow.tolist(), receives.end_ns.tolist(), strict=True))
    assert len(sends) == len(arrived) == 100
    for flow, sent_ns in zip(sends.flow.tolist(), sends.start_ns.tolist(), strict=True):
        assert arrived[flow] >= sent_ns - error_ns


@marked(two_gpus)
def test_a_recorded_training_gives_the_bits_of_an_unrecorded_one() -> None:
    def trained() -> list[float]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(8))).to(labkit.device())
        ddp = torch.nn.parallel.DistributedDataParallel(model, device_ids=[labkit.device().index], bucket_cap_mb=1)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
        for step in range(20):
            torch.manual_seed(100 * step + dist.get_rank())
            ddp(torch.randn(32, 256, device=labkit.device())).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        return [float(each.double().sum()) for each in model.parameters()]

    def unrecorded() -> list[float]:
        from labkit.launch import recording

        with recording.unrecorded():
            return trained()

    recorded = labkit.run(trained, on=on_gpus(2)).results
    assert recorded == labkit.run(unrecorded, on=on_gpus(2)).results
    assert recorded[0] == recorded[1]
