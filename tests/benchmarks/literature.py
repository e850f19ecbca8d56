"""What the virtual cluster predicts beside what papers and others' measurements say; nothing here is timed.

With --quick four of the forty whole steps are simulated; all of them take some minutes of a processor.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from labkit.hardware import Link
from labkit.simulator.cluster import describe
from labkit.simulator.run import simulate
from tests.benchmarks import megatron, published_steps
from tests.benchmarks.table import Bar, table

FORWARDS_S, BACKWARDS_S = 0.1, 0.2

GPIPE = "Huang et al. 2019, GPipe, section 2.3: (K-1)/(M+K-1); arxiv.org/abs/1811.06965"
FLUSH = "Narayanan et al. 2021, Megatron-LM, section 2.2.1: (p-1)/m; arxiv.org/abs/2104.04473"
INTERLEAVED = "the same, section 2.2.2: (p-1)/(v m)"
TABLE_1 = "Narayanan et al. 2021, Megatron-LM, table 1; arxiv.org/abs/2104.04473"
AZURE_A100 = "Azure AI-benchmarking-guide, ND A100 v4 results, NCCL 2.18.5; github.com/Azure/AI-benchmarking-guide"
AZURE_H100 = "the same, ND H100 v5 results"
AML_A100 = "README of AML_NCCL_Test: 8 A100 of an Azure ND A100 v4, one process a GPU, in place"
GCM_A100 = "8 A100, one process a GPU, in place, NCCL 2.16.2; github.com/facebookresearch/gcm, test_check_nccl.py"
DGX_H100 = (
    "NVIDIA's recipes for DGX H100, one process a GPU, in place; github.com/NVIDIA/dgxc-benchmarking, nccl/README.md"
)
AWS_H100 = (
    "8 H100 of an AWS P5, one process a GPU, in place; github.com/aws-samples/awsome-distributed-training, "
    "1.architectures/3.aws-batch/README.md"
)
JEAUGEY = "S. Jeaugey of NCCL, github.com/NVIDIA/nccl-tests/issues/212"
NODES_2 = "github.com/NVIDIA/nccl-tests/issues/175: two nodes of 8 A100, 4 HDR cards each"
THAKUR = "Thakur, Rabenseifner and Gropp 2005, Optimization of Collective Communication Operations in MPICH"


@dataclass(frozen=True)
class BusBandwidths:
    """A table that nccl-tests printed of all_reduce on 8 GPUs.

    Attributes:
        gpu: Which.
        one_process: Whether one process drives all of them.
        measured: Bytes -> bus bandwidth, GB/s.
        source: Where it stands.
    """

    gpu: str
    one_process: bool
    measured: dict[int, float]
    source: str


BUS_BANDWIDTHS = (
    BusBandwidths(
        "a100", True,
        {2**12: 0.17, 2**16: 2.70, 2**20: 36.22, 2**24: 109.22, 2**28: 213.87, 2**30: 228.10, 2**33: 231.58},
        AZURE_A100,
    ),
    BusBandwidths(
        "h100", True,
        {2**12: 0.27, 2**16: 2.72, 2**20: 43.70, 2**24: 234.45, 2**28: 423.38, 2**30: 466.35, 2**33: 478.87},
        AZURE_H100,
    ),
    BusBandwidths(
        "a100", False,
        {2**12: 0.33, 2**16: 4.21, 2**20: 48.97, 2**21: 58.54, 2**22: 87.69, 2**23: 115.05, 2**24: 134.35,
         2**25: 166.85, 2**26: 203.28, 2**27: 202.98, 2**28: 216.87, 2**30: 228.97, 2**33: 234.12},
        AML_A100,
    ),
    BusBandwidths("a100", False, {2**25: 167.99, 2**26: 211.17, 2**27: 204.27, 2**28: 223.06, 2**30: 231.70}, GCM_A100),
    BusBandwidths(
        "h100", False,
        {2**12: 0.44, 2**16: 6.08, 2**20: 68.14, 2**21: 87.20, 2**22: 136.37, 2**23: 178.96, 2**24: 238.61,
         2**25: 295.27, 2**26: 361.68, 2**27: 400.84, 2**28: 421.91, 2**30: 467.85, 2**33: 479.84},
        DGX_H100,
    ),
    BusBandwidths(
        "h100", False,
        {2**12: 0.45, 2**16: 6.28, 2**20: 64.68, 2**21: 84.59, 2**22: 133.46, 2**23: 176.40, 2**24: 237.86,
         2**25: 296.06, 2**26: 359.71, 2**27: 396.71, 2**28: 419.00, 2**30: 441.57, 2**33: 480.36},
        AWS_H100,
    ),
)  # fmt: skip

LAUNCH_S = 4.8e-6
"""What a launch costs where one process drives 8 GPUs: the mean of the four rows up to 64 KiB, which take 8 of them."""
ONE_PROCESS = (
    "one process launches 8 GPUs one after the other in that benchmark, and no call is quicker than that: 8 times "
    f"{LAUNCH_S * 1e6:g} us, which is the mean of the four rows up to 64 KiB; these are therefore shown and not held"
)
MEDIUM = (
    "not held: one process drives all 8 GPUs. With a process each, 16 MiB take 219 us in place of 269 on the same kind "
    "of machine, and that row is held"
)
SMALL = (
    "not held: NCCL's table, which we follow, has the same 15 to 17 us for an A100 as for an H100, where 16 to 19 were "
    "measured; this machine took 22 and 27"
)
HIGH = (
    "products reach the share of the peak that 8192^3 does, but for waves left unfilled; kernels follow without a gap"
)
AVERAGE = 0.1
"""How far the throughputs of Megatron's table may be off on average."""


@dataclass(frozen=True)
class Row:
    """One figure from elsewhere and ours.

    Attributes:
        what: What is compared.
        predicted: Ours.
        published: Theirs.
        within: Share by which ours may differ; None for a row that is shown and not held.
        source: Where theirs stands.
        remark: Why it is off, or what was assumed.
    """

    what: str
    predicted: float
    published: float
    within: float | None
    source: str
    remark: str = ""

    @property
    def off(self) -> float:
        """Return by which share ours differs."""
        return self.predicted / self.published - 1

    @property
    def holds(self) -> bool:
        """Return whether it differs by no more than it may."""
        return self.within is None or abs(self.off) <= self.within


class _Timed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        time.sleep(FORWARDS_S)
        return x * 2.0

    @staticmethod
    def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        time.sleep(BACKWARDS_S)
        return grad * 2.0


class _Stage(nn.Module):
    """Takes as long as it is told, by the virtual clock, and no arithmetic to speak of."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = _Timed.apply(x * self.weight)
        return y


def _pipeline(name: str, num_microbatches: int, chunks: int) -> float:
    """Return the seconds of a step of one of torch's own schedules."""
    from torch.distributed import (
        pipelining,
    )  # brings torch._dynamo, two seconds that a collection of tests need not pay

    rank, size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cpu")
    stages = [pipelining.PipelineStage(_Stage(), rank + size * chunk, size * chunks, device) for chunk in range(chunks)]
    schedule: Any = getattr(pipelining, name)(
        stages if chunks > 1 else stages[0], num_microbatches, loss_fn=nn.MSELoss()
    )
    inputs = torch.ones(num_microbatches, 2)
    seconds = 0.0
    for _ in range(2):  # shapes are exchanged in the first
        dist.barrier()
        begin = time.perf_counter()
        if rank == 0:
            schedule.step(inputs)
        elif rank == size - 1:
            schedule.step(target=inputs, losses=[])
        else:
            schedule.step()
        dist.barrier()
        seconds = time.perf_counter() - begin
    return seconds


def bubbles() -> Iterator[Row]:
    """Yield the bubbles of torch's schedules, run in virtual time, beside their closed forms."""
    for name, p, m, v in (
        ("ScheduleGPipe", 4, 8, 1), ("ScheduleGPipe", 8, 32, 1), ("Schedule1F1B", 4, 8, 1), ("Schedule1F1B", 8, 32, 1),
        ("ScheduleInterleaved1F1B", 4, 8, 2), ("ScheduleInterleaved1F1B", 4, 16, 4),
    ):  # fmt: skip
        took = max(simulate(_pipeline, (name, m, v), describe(p), echo=False).results)
        ideal = m * v * (FORWARDS_S + BACKWARDS_S)
        what = f"{name}: {p} stages, {m} microbatches" + (f", {v} parts a stage" if v > 1 else "")
        if name == "ScheduleGPipe":
            yield Row(f"{what}, bubble of all", 1 - ideal / took, (p - 1) / (m + p - 1), 0.01, GPIPE)
        else:
            source = INTERLEAVED if v > 1 else FLUSH
            yield Row(f"{what}, bubble to work", took / ideal - 1, (p - 1) / (v * m), 0.01, source)


def _all_reduce(num_bytes: int) -> float:
    begin = time.perf_counter()
    dist.all_reduce(torch.empty(num_bytes, dtype=torch.uint8, device="meta"))
    return time.perf_counter() - begin


@cache
def bus_bandwidth(num_bytes: int, num_ranks: int, **cluster: Any) -> float:
    """Return the bus bandwidth of an all-reduce in GB/s, as nccl-tests counts it; several tables ask for the same."""
    seconds = max(simulate(_all_reduce, (num_bytes,), describe(num_ranks, **cluster), echo=False).results)
    return 2 * (num_ranks - 1) / num_ranks * num_bytes / seconds / 1e9


def bandwidths() -> Iterator[Row]:
    """Yield nccl-tests' bus bandwidths of all_reduce."""
    for known in BUS_BANDWIDTHS:
        for size, theirs in known.measured.items():
            ours = bus_bandwidth(size, 8, gpu=known.gpu)
            within, remark = (0.15, "") if size >= 2**28 else (0.3, "")
            if known.one_process and size <= 2**20:
                ours = min(2 * 7 / 8 * size / (8 * LAUNCH_S) / 1e9, ours)
                within, remark = within if size > 2**16 else None, ONE_PROCESS
            elif known.gpu == "a100" and known.one_process and size == 2**24:
                within, remark = None, MEDIUM
            elif known.gpu == "a100" and size <= 2**16:
                within, remark = None, SMALL
            label = f"{size // 2**20} MiB" if size >= 2**20 else f"{size // 2**10} KiB"
            yield Row(f"8 {known.gpu}, {label}, GB/s", ours, theirs, within, known.source, remark)
    ring = bus_bandwidth(2**33, 8, gpu="h100", algorithm="ring")
    yield Row("8 h100, ring, GB/s", ring, 370, 0.05, JEAUGEY)
    nvls = bus_bandwidth(2**33, 8, gpu="h100", algorithm="nvls")
    yield Row("8 h100, sums in the switch, GB/s", nvls, 480, 0.05, JEAUGEY)
    two = bus_bandwidth(2**32, 16, gpu="a100", nic="ib_hdr", nics_per_node=4, algorithm="ring")
    yield Row("2 x 8 a100, ring, GB/s", two, 86, 0.2, NODES_2, "asked there why it is not 100: the cards' setting")


def latencies() -> Iterator[Row]:
    """Yield the closed forms of ring and tree, on a link that costs a latency and its bytes and no more."""
    alpha_s, rate = 10e-6, 1e9
    link = Link("plain", rate, round(alpha_s * 1e9), "assumed", "assumed")
    for size in (8, 64):
        for num_bytes in (8 * size, 2**24):
            same = {"link": link, "gpus_per_node": size}

            def took(algorithm: str, size: int = size, num_bytes: int = num_bytes, same: Any = same) -> float:
                cluster = describe(size, algorithm=algorithm, **same)  # type: ignore[arg-type]
                return max(simulate(_all_reduce, (num_bytes,), cluster, echo=False).results)

            form = 2 * (size - 1) * (alpha_s + num_bytes / size / rate)
            yield Row(
                f"ring, {size} ranks, {num_bytes} B: 2(N-1)(a + B/N/b), us",
                took("ring") * 1e6,
                form * 1e6,
                0.01,
                THAKUR,
            )
        form = 2 * math.log2(size) * alpha_s
        yield Row(
            f"tree, {size} ranks, no bytes: 2 log2(N) a, us", took("tree", num_bytes=1) * 1e6, form * 1e6, 0.01, THAKUR
        )


def throughputs(most_billions: float = 400.0, *, only: Sequence[float] = ()) -> Iterator[Row]:
    """Yield Megatron-LM's teraflop/s per A100, of models up to a size, or of these sizes only."""
    for job in megatron.PUBLISHED:
        if job.billions in only if only else job.billions <= most_billions:
            parts = f"microbatch {job.microbatch}" + (f", {job.chunks} parts a stage" if job.pipeline > 1 else "")
            name = f"GPT {job.billions}B, {job.gpus} a100, tensor {job.tensor} x pipeline {job.pipeline}, Tflop/s"
            yield Row(name, megatron.teraflops(job), job.published, 0.2, TABLE_1, f"assumed: {parts}; {HIGH}")


SECTIONS: dict[str, Callable[[], Iterator[Row]]] = {
    "Bubbles of torch's pipeline schedules": bubbles,
    "Ring and tree": latencies,
    "Bus bandwidth of all_reduce (nccl-tests)": bandwidths,
    "Megatron-LM's training throughput": throughputs,
}


def run(quick: bool) -> tuple[str, list[Bar], dict[str, Any]]:
    """Return the table, one bar for each section, and the figures."""
    text, bars, figures = [], [], {}
    for title, section in SECTIONS.items():
        most = 2.0 if quick else 600.0  # the model of a trillion parameters would take minutes more
        rows = list(throughputs(most) if section is throughputs else section())
        sources = list(dict.fromkeys(row.source for row in rows))
        remarks = list(dict.fromkeys(row.remark for row in rows if row.remark))
        cells = [
            [
                row.what, f"{row.predicted:.4g}", f"{row.published:.4g}", f"{row.off:+.1%}",
                "shown" if row.within is None else f"{row.within:.0%}", f"[{sources.index(row.source) + 1}]",
                f"({chr(97 + remarks.index(row.remark))})" if row.remark else "",
            ]
            for row in rows
        ]  # fmt: skip
        text += [title, table(["", "predicted", "published", "off", "within", "source", "why"], cells)]
        text += [f"    [{place + 1}] {source}" for place, source in enumerate(sources)]
        text += [f"    ({chr(97 + place)}) {remark}" for place, remark in enumerate(remarks)]
        held = [row for row in rows if row.within is not None]
        missed = sum(not row.holds for row in held)
        bars.append(Bar(f"{title}: {len(held)} figures compared; outside their limits", float(missed), 0.0))
        figures[title] = [{"what": row.what, "predicted": row.predicted, "published": row.published,
                           "within": row.within, "source": row.source, "why": row.remark} for row in rows]  # fmt: skip
    told, more, rows_of_steps = published_steps.compared(2 if quick else published_steps.OF_EACH)
    tables = published_steps.published_table(rows_of_steps)
    return "\n".join([*text, told]), [*bars, *more], {"rows": figures, "tables": tables}
