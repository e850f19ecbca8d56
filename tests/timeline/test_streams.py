"""Which stream a span ran on, as a picture names it; and what a stream waited for, on a virtual device."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import labkit
from labkit.hardware import Device
from labkit.timeline import COMMUNICATION, COMPUTE, HOST, REGION, Timeline
from labkit.timeline.streams import has_streams, streams

_DEVICE = Device(
    "test", 10**12, 8e12, {"float32": 1e10}, "nvlink4", "a device of this test", launch_ns=10, compute_share=1.0,
    memory_share=1.0, kernel_ns=1,
)  # fmt: skip


def _named() -> Timeline:
    lane = [REGION, COMPUTE, HOST, COMPUTE, HOST, COMMUNICATION, COMMUNICATION, HOST]
    kind = ["span", "operator", "copy", "operator", "copy", "all_gather", "irecv", "wait"]
    table = {
        "span": np.array([5, 3, 4, 6]),
        "stream": np.array(["the group of ranks 0, 4", "stream 7", "stream 2", "from rank 3"]),
    }
    return Timeline([0] * 8, lane, range(8), range(1, 9), kind, kind, tables={"stream": table})


def test_the_default_stream_comes_first_then_the_programs_then_those_of_groups_and_messages() -> None:
    names, number = streams(_named())
    assert names == ["default stream", "stream 7", "copies, stream 2", "group 0, 4", "from rank 3"]
    assert number.tolist() == [-1, 0, 0, 1, 2, 3, 4, -1]  # a name and a wait of the host ran on no device


def test_a_run_of_which_no_stream_was_recorded_has_none() -> None:
    timeline = Timeline([0], [COMPUTE], [0], [1], ["forward"], ["span"])
    assert not has_streams(timeline)
    assert streams(timeline)[0] == [] and streams(timeline)[1].tolist() == [-1]


def _chained() -> None:
    """Two streams wait for each other in turn, a third for what passes through one that does nothing itself."""
    x = torch.ones(64, 64, device="cuda")
    default, side, between, last = torch.cuda.current_stream(), *(torch.cuda.Stream() for _ in range(3))
    x.mm(x)
    side.wait_stream(default)
    with torch.cuda.stream(side):
        x.neg().mm(x)
    between.wait_stream(side)
    last.wait_stream(between)
    with torch.cuda.stream(last):
        x.mm(x)
    default.wait_stream(side)
    x.abs()
    torch.cuda.synchronize()
    last.wait_stream(default)  # has happened: it holds nothing up
    with torch.cuda.stream(last):
        x.cos()
    torch.cuda.synchronize()


@pytest.mark.in_turn
def test_a_stream_that_waited_tells_for_which_span_and_how_long() -> None:
    timeline = labkit.run(_chained, on=labkit.virtual(1, gpu=_DEVICE, cuda=True), echo=False).timeline
    names, number = streams(timeline)
    held = timeline.tables["held"]
    assert (held["end_ns"] == timeline.start_ns[held["span"]]).all()
    assert (held["end_ns"] == timeline.end_ns[held["of"]]).all() and (held["end_ns"] > held["start_ns"]).all()
    told = [
        tuple(f"{timeline.name[row]} on {names[number[row]]}" for row in pair)
        for pair in zip(held["span"].tolist(), held["of"].tolist(), strict=True)
    ]
    on_default, on_side = "mm on default stream", "mm on stream 1"
    assert sorted(told) == sorted(
        [("neg on stream 1", on_default), ("mm on stream 3", on_side), ("abs on default stream", on_side)]
    )
    # Rows of a part of a timeline keep what they waited for; a wait for a span that is not in it is gone.
    kept = timeline.select(number != 0)
    assert len(kept.tables["held"]["span"]) == 1
    assert kept.name[kept.tables["held"]["of"]].tolist() == ["mm"]
