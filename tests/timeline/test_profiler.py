"""torch.profiler's own records, read back."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from labkit.errors import ConfigError
from labkit.timeline import COMMUNICATION, COMPUTE, HOST, REGION, metrics
from labkit.timeline.profiler import read_profile, read_profiles


def _trained() -> Any:
    model = torch.nn.Linear(32, 32)
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as recorded:
        with record_function("forward"):
            loss = model(torch.ones(4, 32)).sum()
        loss.backward()
    return recorded


def test_a_cpu_profile_has_its_operators_as_computation_and_its_regions_as_names() -> None:
    timeline = read_profile(_trained())
    computed = timeline.spans(lane=COMPUTE)
    assert "aten::linear" in computed.name and "aten::addmm" not in computed.name
    (region,) = (span for span in timeline.spans(lane=REGION, kind="span").rows() if span.name == "forward")
    (linear,) = (span for span in computed.rows() if span.name == "aten::linear")
    assert region.start_ns <= linear.start_ns < linear.end_ns <= region.end_ns
    assert timeline.start_ns.min() == 0 and timeline.num_ranks == 1
    assert 0 < metrics.busy_share(timeline, [COMPUTE])[0] <= 1


def test_a_profile_on_disk_is_the_same_packed_or_not(tmp_path: Path) -> None:
    recorded = _trained()
    recorded.export_chrome_trace(str(tmp_path / "profile.json"))
    plain = read_profile(tmp_path / "profile.json", rank=2)
    (tmp_path / "profile.json.gz").write_bytes(gzip.compress((tmp_path / "profile.json").read_bytes()))
    assert list(read_profile(tmp_path / "profile.json.gz", rank=2).rows()) == list(plain.rows())
    assert set(plain.rank.tolist()) == {2}


def _gpu_trace(rank: int, base_ns: int) -> dict[str, Any]:
    """Return events as Kineto writes them on a GPU: a launch, a matrix product, NCCL's kernel half under it."""

    def event(name: str, category: str, ts: float, dur: float, tid: int) -> dict[str, Any]:
        return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur}

    return {
        "baseTimeNanoseconds": base_ns,
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2},
        "traceEvents": [
            event("aten::mm", "cpu_op", 100.0, 5.0, 1),
            event("aten::empty", "cpu_op", 101.0, 1.0, 1),
            event("c10d::allreduce_", "cpu_op", 106.0, 3.0, 1),
            event("sm90_xmma_gemm_f32f32", "kernel", 110.0, 20.0, 7),
            event("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", "kernel", 120.0, 20.0, 8),
            {"ph": "i", "name": "mark", "ts": 1.0},
        ],
    }


def test_gpu_kernels_are_computation_and_communication_and_the_cpu_is_host(tmp_path: Path) -> None:
    (tmp_path / "gpu.json").write_text(json.dumps(_gpu_trace(1, 0)))
    timeline = read_profile(tmp_path / "gpu.json")
    assert [(span.lane, span.kind, span.start_ns) for span in timeline.rows()] == [
        (HOST, "op", 0),
        (HOST, "call", 6_000),
        (COMPUTE, "kernel", 10_000),
        (COMMUNICATION, "all_reduce", 20_000),
    ]
    assert timeline.rank.tolist() == [1] * 4 and timeline.num_ranks == 2
    assert metrics.hidden_communication_share(timeline, rank=1) == 0.5


def test_profiles_of_several_ranks_share_one_time_axis(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"{rank}.json").write_text(json.dumps(_gpu_trace(rank, 1_000_000 + 500 * rank)))
    timeline = read_profiles([tmp_path / "0.json", tmp_path / "1.json"])
    starts = [timeline.spans(rank=rank, lane=COMMUNICATION).start_ns.tolist() for rank in range(2)]
    assert starts == [[20_000], [20_500]]
    assert timeline.tables["clock"]["method"].tolist() == ["torch.profiler"] * 2
    with pytest.raises(ConfigError, match="give one profile for each rank"):
        read_profiles([tmp_path / "0.json", tmp_path / "0.json"])


def test_what_is_no_profile_is_refused_in_words(tmp_path: Path) -> None:
    for text, reason in (("hello", "is not a Chrome trace in JSON"), ("{}", "has no traceEvents")):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(ConfigError, match=f"x.json {reason}"):
            read_profile(tmp_path / "x.json")
    (tmp_path / "x.json").write_text('{"traceEvents": []}')
    with pytest.raises(ConfigError, match="The profile is empty"):
        read_profile(tmp_path / "x.json")
