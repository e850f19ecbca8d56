"""NCCL calls get the device's times, not those of their launch."""

from __future__ import annotations

from pathlib import Path

import pytest
import recorded_programs as programs
import torch
from recorded_ranks import record_of, run_ranks

pytestmark = [
    pytest.mark.gpu1,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]


def test_an_nccl_call_lasts_from_when_its_stream_reached_it_until_it_was_done_on_the_device(tmp_path: Path) -> None:
    busy_ms = run_ranks(programs.nccl_behind_a_long_kernel, 1, tmp_path)[0]
    timeline = record_of(tmp_path, 1)
    launched, blocking, asynchronous = timeline.spans(kind="all_reduce").rows()
    # The host launched both while the kernel before them still ran; on the device they come after it.
    assert blocking.start_ns - launched.end_ns >= 0.8 * busy_ms * 1e6
    assert asynchronous.end_ns >= asynchronous.start_ns >= launched.end_ns
    assert timeline.tables["open"]["span"].tolist() == []
