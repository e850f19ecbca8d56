"""Streams of virtual CUDA devices: cases small enough to draw, each drawn above what it proves.

Kernels are named by how many microseconds they take on a device alone; launching one takes the host 10 ns. Two ranks'
all_reduce of n thousand bytes takes n microseconds.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import labkit
from labkit.errors import RunTimeout
from labkit.hardware import DEVICES, Device, Link
from labkit.simulator.streams import TAKES
from labkit.timeline.span import Lane

US = 1_000
LAUNCH, READ = 10, 50
LINK = Link("test link", 1e9, 0, "a link of this test", "none")
DEVICE = Device(
    "test", 10**12, 8e9, {"float32": 1e15}, "nvlink4", "a device of this test", launch_ns=LAUNCH, compute_share=1.0,
    memory_share=1.0, kernel_ns=1,
)  # fmt: skip


def _run(function: Callable[..., Any], *args: Any, world_size: int = 1, **more: Any) -> Any:
    def on_device() -> Any:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        return function(*args)

    return labkit.run(on_device, on=labkit.virtual(world_size, gpu=DEVICE, link=LINK, cuda=True, **more), echo=False)


def _work(us: int) -> None:
    """Issue a kernel."""
    torch.empty(us * US, device="cuda").add_(1.0)


def _kernels(run: Any, rank: int = 0) -> list[tuple[int, int]]:
    """Return when the kernels of a rank began and ended, sorted."""
    spans = run.timeline.spans(rank=rank, lane=Lane.COMPUTE)
    return sorted(zip(spans.start_ns.tolist(), spans.end_ns.tolist(), strict=True))


def _calls(run: Any, rank: int = 0) -> list[tuple[int, int]]:
    spans = run.timeline.spans(rank=rank, lane=Lane.COMMUNICATION)
    return list(zip(spans.start_ns.tolist(), spans.end_ns.tolist(), strict=True))


def _two_streams() -> int:
    _work(10)
    with torch.cuda.stream(torch.cuda.Stream()):
        _work(10)
    return time.perf_counter_ns()


def test_kernels_of_two_streams_share_the_device() -> None:
    """
    0   10 20                     20000 20010
    host .. |
    default [10 alone, then half the device  ]
    other       [half the device             | 10 alone]
    """
    run = _run(_two_streams)
    assert _kernels(run) == [(10, 20_000), (20, 20_010)]
    assert run.results == [2 * LAUNCH + READ]
    assert run.elapsed_ns == 20_010


def test_joined_operators_are_those_of_one_stream() -> None:
    def work() -> None:
        _work(2)
        _work(3)
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
            _work(1)
            _work(1)

    run = _run(work, join_operators=True)
    first = LAUNCH + 5 * US
    assert _kernels(run) == [(LAUNCH, first), (first, first + 2 * US)]


def _waiting_streams() -> None:
    side = torch.cuda.Stream()
    _work(5)
    between = torch.cuda.current_stream().record_event()
    _work(5)
    side.wait_event(between)
    with torch.cuda.stream(side):
        _work(2)
    torch.cuda.current_stream().wait_stream(side)
    _work(1)


def test_a_stream_waits_for_an_event_and_not_for_what_was_issued_after_it() -> None:
    """
    default [5      ][5, half of the time shared   ]  [1]
    other            [2, shared: 4      ]
    """
    run = _run(_waiting_streams)
    first = LAUNCH + 5 * US
    second = first + 7 * US
    assert _kernels(run) == [(LAUNCH, first), (first, first + 4 * US), (first, second), (second, second + US)]


def _asking() -> tuple[Any, ...]:
    start, end, side = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True), torch.cuda.Stream()
    with torch.cuda.stream(side):
        start.record()
        _work(20)
        end.record()
    before = end.query(), side.query(), torch.cuda.current_stream().query()
    try:
        start.elapsed_time(end)
    except RuntimeError as error:
        said = str(error)
    one = torch.ones((), device="cuda")
    one.item()
    after_item = time.perf_counter_ns()
    end.synchronize()
    after = time.perf_counter_ns(), end.query(), side.query()
    return before, said, after_item, after, start.elapsed_time(end)


def test_the_host_waits_for_what_it_asks_for_and_for_nothing_else() -> None:
    before, said, after_item, (after, happened, done), took = _run(_asking).results[0]
    assert before == (False, False, True)
    assert "device not ready" in said
    assert after_item < 10 * US  # the long kernel is on another stream
    assert (after, happened, done) == (LAUNCH + 20 * US + READ, True, True)
    assert took == pytest.approx(20 * US / 1e6, rel=0.001)


def _synchronized(how: str) -> int:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        _work(20)
    if how == "device":
        torch.cuda.synchronize()
    elif how == "stream":
        side.synchronize()
    elif how == "other":
        torch.cuda.current_stream().synchronize()
    return time.perf_counter_ns()


@pytest.mark.parametrize(("how", "until"), [("device", 20_010), ("stream", 20_010), ("other", 10), ("", 10)])
def test_synchronize_waits_for_the_device_or_for_one_stream(how: str, until: int) -> None:
    assert _run(_synchronized, how).results == [until + READ]


def _overlapped(late: int) -> int:
    _work(10 + (late if dist.get_rank() else 0))
    work = dist.all_reduce(torch.empty(1000, device="cuda"), async_op=True)
    _work(10)
    assert work is not None
    work.wait()
    _work(1)
    return time.perf_counter_ns()


def test_a_collective_runs_beside_kernels_and_takes_its_part_of_them() -> None:
    """
    default [10       ][10, 18.9 % slower while the collective runs][1]
    group              [4 ]
    """
    run = _run(_overlapped, 0, world_size=2)
    begins, ends = LAUNCH + 10 * US, LAUNCH + 14 * US
    later = ends + math.ceil(10 * US - 4 * US / (1 + TAKES))
    for rank in range(2):
        assert _calls(run, rank) == [(begins, ends)]
        assert _kernels(run, rank) == [(LAUNCH, begins), (begins, later), (later, later + US)]
    assert run.results == [3 * LAUNCH + READ] * 2


def test_waiting_holds_up_the_stream_and_not_the_host() -> None:
    """Rank 1 comes 20 late.

    rank 0  default [10   ][10     ]                          [1]
            group          [on the device, waiting       | 4 ]
    rank 1  default [30                                  ][10  ...
    """
    run = _run(_overlapped, 20, world_size=2)
    begins, ends = LAUNCH + 10 * US, LAUNCH + 34 * US
    assert _calls(run, 0) == [(begins, ends)]
    assert _calls(run, 1) == [(LAUNCH + 30 * US, ends)]
    assert _kernels(run, 0) == [(LAUNCH, begins), (begins, begins + 10 * US), (ends, ends + US)]
    assert run.results == [3 * LAUNCH + READ] * 2


def _blocking_on_a_side_stream() -> list[tuple[int, int]]:
    side, x = torch.cuda.Stream(), torch.ones(1000, device="cuda")
    with torch.cuda.stream(side):
        dist.all_reduce(x)
    _work(10)  # beside it: the default stream waits for nothing
    torch.cuda.current_stream().wait_stream(side)
    x += 1
    return [(int(x[0]), time.perf_counter_ns())]


def test_a_blocking_collective_on_a_side_stream_leaves_the_default_one_alone() -> None:
    run = _run(_blocking_on_a_side_stream, world_size=2)
    ((_, ended),) = _calls(run)
    kernels = _kernels(run)
    assert kernels[1][0] < ended < kernels[1][1]
    assert [value for ((value, _),) in run.results] == [3, 3]


def _copies(pinned: bool, non_blocking: bool) -> tuple[int, int]:
    host, there = torch.ones(100_000), torch.ones(100_000, device="cuda")
    torch.cuda.synchronize()
    if pinned:
        host = host.pin_memory()
    side, begin = torch.cuda.Stream(), time.perf_counter_ns()
    _work(50)
    with torch.cuda.stream(side):
        host.to("cuda", non_blocking=non_blocking)
    back = torch.cuda.Stream()
    with torch.cuda.stream(back):
        there.to("cpu", non_blocking=non_blocking)
    returned = time.perf_counter_ns()
    torch.cuda.synchronize()
    return returned - begin, time.perf_counter_ns() - begin


def test_pinned_copies_run_beside_kernels_and_each_other() -> None:
    """
    default [50                        ]
    in      [copy   ]
    out     [copy   ]
    """
    run = _run(_copies, True, True)
    assert run.results == [(3 * LAUNCH + READ, LAUNCH + 50 * US + READ)]
    spans = run.timeline.spans(kind="copy")
    (into, out), (into_end, _) = spans.start_ns.tolist(), spans.end_ns.tolist()
    assert into < out < into_end < run.elapsed_ns


@pytest.mark.parametrize(("pinned", "non_blocking"), [(True, False), (False, True), (False, False)])
def test_the_host_waits_for_a_copy_that_is_not_both_pinned_and_non_blocking(pinned: bool, non_blocking: bool) -> None:
    run = _run(_copies, pinned, non_blocking)
    (ends,) = run.timeline.spans(kind="copy").end_ns[:1].tolist()
    ((returned, _),) = run.results
    assert returned > 5 * US
    assert ends < run.elapsed_ns  # it waits for the copy's stream, not for the kernel's


def _a_store_after_a_collective() -> float:
    store = dist.distributed_c10d._get_default_store()
    x = torch.ones(4, device="cuda")
    if dist.get_rank() == 0:
        dist.all_reduce(x)
        store.set("go", "on")  # the host of rank 0 is past the call, whose stream waits
    else:
        store.get("go")
        dist.all_reduce(x)
    return float(x.sum())


def test_the_host_goes_on_after_a_collective_that_nobody_else_has_called() -> None:
    assert _run(_a_store_after_a_collective, world_size=2).results == [8.0, 8.0]


def _recv_before_send() -> None:
    peer, x, y = 1 - dist.get_rank(), torch.ones(4, device="cuda"), torch.ones(4, device="cuda")
    dist.recv(x, peer)
    dist.send(y, peer)


def test_a_send_behind_a_wait_that_needs_it_is_told_as_a_deadlock() -> None:
    with pytest.raises(RunTimeout) as caught:
        _run(_recv_before_send, world_size=2)
    said = str(caught.value)
    assert "They wait for each other in a circle: rank 0 -> rank 1 -> rank 0" in said
    assert "recv from rank 1" in said


def _stuck_device() -> None:
    x = torch.ones(4, device="cuda")
    if dist.get_rank() == 0:
        dist.all_reduce(x, async_op=True)
        torch.cuda.synchronize()
    else:
        time.sleep(0.001)


def test_a_host_that_waits_for_a_stuck_device_is_told_what_the_device_stands_in() -> None:
    with pytest.raises(RunTimeout) as caught:
        _run(_stuck_device, world_size=2)
    assert "torch.cuda.synchronize; its device stands in all_reduce (collective 1 of the default group)" in str(
        caught.value
    )


def _lines_of_a_trace(run: Any, path: Path) -> list[str]:
    run.timeline.to_chrome(path)
    events = json.loads(path.read_text())["traceEvents"]
    return [event["args"]["name"] for event in events if event["name"] == "thread_name"]


def test_every_stream_has_a_line_of_its_own_in_a_chrome_trace(tmp_path: Path) -> None:
    run = _run(_blocking_on_a_side_stream, world_size=2)
    assert {"compute", "communication, the default group"} <= set(_lines_of_a_trace(run, tmp_path / "trace.json"))
    lines = _lines_of_a_trace(_run(_two_streams), tmp_path / "trace.json")
    assert lines == ["compute", "compute, stream 1"]


def _passing_on() -> int:
    peer = 1 - dist.get_rank()
    for _ in range(8):
        x, y = torch.ones(1000, device="cuda"), torch.empty(1000, device="cuda")
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, x, peer), dist.P2POp(dist.irecv, y, peer)])
        for work in works:
            work.wait()
        total = y.sum()
        dist.all_reduce(total)
    return torch.cuda.max_memory_allocated()


def test_buffers_of_calls_that_were_waited_for_are_the_programs_again() -> None:
    run = _run(_passing_on, world_size=2)
    assert run.results[0] == run.results[1] < 5 * 4096


READS: dict[str, Callable[[torch.Tensor], object]] = {
    "item": lambda tensor: tensor[0, 0].item(),
    "tolist": lambda tensor: tensor[0].tolist(),
    "repr": repr,
    "format": lambda tensor: f"{tensor[0, 0]:.2f}",
    "equal": lambda tensor: torch.equal(tensor, tensor),
    "allclose": lambda tensor: torch.allclose(tensor, tensor),
}


CHOICES: dict[str, tuple[bool, Callable[[torch.Tensor, torch.Tensor], object]]] = {
    "x[mask]": (True, lambda x, mask: x[mask]),
    "x[mask] = tensor": (True, lambda x, mask: x.index_put_((mask,), torch.ones(2, device="cuda"))),
    "nonzero": (True, lambda _, mask: mask.nonzero()),
    "masked_select": (True, lambda x, mask: x.masked_select(mask)),
    "unique": (True, lambda x, _: torch.unique(x)),
    "where": (True, lambda _, mask: torch.where(mask)),
    "x[mask] = number": (False, lambda x, mask: x.index_put_((mask,), torch.zeros((), device="cuda"))),
    "x[numbers]": (False, lambda x, _: x[torch.arange(2, device="cuda")]),
    "masked_fill": (False, lambda x, mask: x.masked_fill(mask, 0.0)),
}


@pytest.mark.parametrize("name", CHOICES)
def test_what_a_mask_chooses_waits_for_the_device_where_its_size_hangs_on_it(name: str) -> None:
    waits, chooses = CHOICES[name]

    def choosing() -> float:
        tensor = torch.ones(4, 4, device="cuda")
        mask = torch.zeros(4, 4, dtype=torch.bool, device="cuda")
        mask[0, 1] = mask[2, 3] = True
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(20):
            tensor = tensor @ tensor * 0.0
        chooses(tensor, mask)
        return time.perf_counter() - begin

    slow = replace(DEVICES["h100"], launch_ns=1_000, kernel_ns=100_000)
    run = labkit.run(choosing, on=labkit.virtual(1, gpu=slow, cuda=True), echo=False)
    assert (run.results[0] >= 20 * 100e-6) == waits


@pytest.mark.parametrize("shapes", [False, True])
@pytest.mark.parametrize("name", READS)
def test_what_hands_values_to_the_program_waits_for_the_device(name: str, shapes: bool) -> None:
    def reading() -> tuple[float, float]:
        tensor = torch.ones(64, 64, device="cuda")
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(20):
            tensor = tensor @ tensor
        issued = time.perf_counter() - begin
        READS[name](tensor)
        return issued, time.perf_counter() - begin

    slow = replace(DEVICES["h100"], launch_ns=1_000, kernel_ns=100_000)
    run = labkit.run(reading, on=labkit.virtual(1, gpu=slow, cuda=True, shapes=shapes), echo=False)
    issued, read = run.results[0]
    assert issued < 100e-6
    assert read >= 20 * 100e-6
