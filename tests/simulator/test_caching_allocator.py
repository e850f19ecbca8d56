"""What the caching allocator of a virtual device takes, as PyTorch's own does by its source."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

import labkit
from labkit.simulator.caching_allocator import MIB, CachingAllocator
from labkit.simulator.stream_queue import StreamQueue
from labkit.simulator.streams import StreamEvent


def _allocator(capacity: int = 1000 * MIB) -> tuple[CachingAllocator, list[StreamEvent]]:
    events: list[StreamEvent] = []

    def record_event(stream: StreamQueue) -> StreamEvent:
        events.append(StreamEvent(stream))
        return events[-1]

    return CachingAllocator(capacity, record_event), events


MINE, OTHER = StreamQueue(), StreamQueue("other")


def _take(allocator: CachingAllocator, num_bytes: int, stream: StreamQueue = MINE) -> Any:
    block = allocator.take(num_bytes, stream)
    assert block is not None
    return block


@pytest.mark.parametrize(
    ("asked", "allocated", "reserved"),
    [
        (1, 512, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 1, 10 * MIB, 10 * MIB),
        (10 * MIB + 1, 10 * MIB + 512, 12 * MIB),
        (19 * MIB, 20 * MIB, 20 * MIB),  # a rest of 1 MiB is not cut off
    ],
)
def test_sizes_are_rounded_and_segments_are_of_these_sizes(asked: int, allocated: int, reserved: int) -> None:
    allocator, _ = _allocator()
    _take(allocator, asked)
    assert (allocator.allocated.now, allocator.reserved.now) == (allocated, reserved)


def test_freed_blocks_join_and_serve_the_smallest_fit() -> None:
    allocator, _ = _allocator()
    first, second, third = (_take(allocator, 6 * MIB) for _ in range(3))
    assert allocator.reserved.now == 20 * MIB
    allocator.give_back(first)
    allocator.give_back(third)  # joins the rest of the segment: 8 MiB
    assert _take(allocator, 5 * MIB).place == first.place
    allocator.give_back(second)
    assert _take(allocator, 7 * MIB).place == second.place
    assert allocator.reserved.now == 20 * MIB


def test_a_stream_has_blocks_of_its_own() -> None:
    allocator, _ = _allocator()
    allocator.give_back(_take(allocator, 15 * MIB))
    _take(allocator, 15 * MIB, OTHER)
    assert (allocator.allocated.now, allocator.reserved.now) == (16 * MIB, 32 * MIB)
    _take(allocator, 15 * MIB)
    assert allocator.reserved.now == 32 * MIB


def test_what_another_stream_uses_is_free_when_that_has_come_there() -> None:
    allocator, events = _allocator()
    block = _take(allocator, 15 * MIB)
    block.uses.append(OTHER)
    allocator.give_back(block)
    assert (allocator.allocated.now, allocator.active.now) == (0, 16 * MIB)
    events[0].ready_ns = 100
    allocator.look(99)
    _take(allocator, 15 * MIB)
    assert allocator.reserved.now == 32 * MIB
    allocator.look(100)
    _take(allocator, 15 * MIB)
    assert allocator.reserved.now == 32 * MIB


def test_idle_segments_go_back_when_the_device_is_full_and_those_in_use_do_not() -> None:
    allocator, _ = _allocator(40 * MIB)
    allocator.give_back(_take(allocator, 20 * MIB, OTHER))
    small = _take(allocator, 5 * MIB)
    assert allocator.reserved.now == 40 * MIB
    _take(allocator, 20 * MIB)
    assert allocator.reserved.now == 40 * MIB
    allocator.give_back(small)
    assert allocator.take(30 * MIB, MINE) is None
    assert allocator.take(20 * MIB, OTHER) is not None


def _reserved() -> list[int]:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    side, found = torch.cuda.Stream(), []
    with torch.cuda.stream(side):
        x = torch.empty(4 * MIB, device="cuda")  # 16 MiB
    for _ in range(20):
        x += 1  # each takes longer than a launch, so the device falls behind
    x.record_stream(torch.cuda.current_stream())
    del x
    found.append(torch.cuda.memory_reserved())
    with torch.cuda.stream(side):
        y = torch.empty(4 * MIB, device="cuda")
    found.append(torch.cuda.memory_reserved())
    del y
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        y, z = (torch.empty(4 * MIB, device="cuda") for _ in range(2))
    found += [torch.cuda.memory_reserved(), torch.cuda.memory_allocated(), y.numel() - z.numel()]
    del y, z
    torch.cuda.empty_cache()
    return [*found, torch.cuda.memory_reserved(), torch.cuda.max_memory_reserved()]


def test_record_stream_keeps_memory_until_the_stream_has_done_with_it() -> None:
    run = labkit.run(_reserved, on=labkit.virtual(1, cuda=True), echo=False)
    one = 16 * MIB
    assert run.results == [[one, 2 * one, 2 * one, 2 * one, 0, 0, 2 * one]]
    assert run.timeline.tables["memory_peak"]["reserved"].tolist() == [2 * one]


def _full() -> str:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    with torch.cuda.stream(torch.cuda.Stream()):
        kept = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
    try:
        torch.empty(25 * MIB, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError as error:
        return str(error)
    return f"made beside {kept.numel()}"


def test_a_device_is_full_when_no_segment_fits_and_says_what_is_reserved() -> None:
    (said,) = labkit.run(_full, on=labkit.virtual(1, cuda=True, memory=40 * MIB), echo=False).results
    assert "reserved beside that: 17.8 MB" in said
