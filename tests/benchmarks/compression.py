"""Bytes and step time of lesson 10's hooks beside torch's own fp16 and PowerSGD hooks: two real processes, one run.

All gradients are in one bucket: torch's PowerSGD starts collectives in callbacks, which gloo calls in threads of its
own, so that with several buckets two ranks may start theirs in another order, and the run ends with sizes that do not
match. The solution's fp16 keeps a memory of what rounding lost, which torch's does not; its PowerSGD unpacks twice, for
the memory and for the gradient, where torch works in place: that is what the wider limits are for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

import labkit
from labkit.lessons import source
from labkit.timeline import Timeline
from tests.benchmarks.ddp import few_large, many_small
from tests.benchmarks.table import Bar, ratio, table

SOLUTION = Path(__file__).parents[2] / "solutions" / "10_gradient_compression.py"
RANK = 2
ONE_BUCKET_MB = 1000
WARM_UP = 5  # torch's PowerSGD begins at its second step; DDP builds its buckets anew after the first
MODELS = {"4 layers of 1024": few_large, "60 layers of 128": many_small}
FP16, POWER = ("torch's fp16", "solution's fp16"), (f"torch's PowerSGD {RANK}", f"solution's PowerSGD {RANK}")
NAMES = ("no hook", *FP16, *POWER)
LIMITS = {FP16: 2.0, POWER: 2.0}

Hook = tuple[Any, Callable[..., Any]]


def solution() -> dict[str, Any]:
    """Return what the given and exercise cells of lesson 10's solution define."""
    names: dict[str, Any] = {"__name__": "solution_06"}
    for cell in source.load(SOLUTION).cells:
        if cell.role in ("given", "exercise"):
            exec(compile(cell.source, f"{SOLUTION.name}:{cell.id}", "exec", dont_inherit=True), names)
    return names


def _hooks() -> dict[str, Hook]:
    ours = solution()
    fp16 = ours["HookState"](ours["ErrorFeedback"](ours["Cast"](torch.float16)))
    power = ours["PowerState"](RANK)
    torchs = powerSGD_hook.PowerSGDState(
        process_group=None,
        matrix_approximation_rank=RANK,
        start_powerSGD_iter=2,
        compression_stats_logging_frequency=10**9,
    )
    return {
        FP16[0]: (None, default_hooks.fp16_compress_hook),
        FP16[1]: (fp16, ours["compression_hook"]),
        POWER[0]: (torchs, powerSGD_hook.powerSGD_hook),
        POWER[1]: (power, ours["power_hook"]),
    }


def alternate(model: str, num_steps: int) -> dict[str, list[float]]:
    """Return this rank's seconds of each step for every hook; they take turns, and the first steps are thrown away."""
    wrapped, inputs = {}, None
    hooks = _hooks()
    for name in NAMES:
        torch.manual_seed(0)
        module, inputs = MODELS[model]()
        wrapped[name] = nn.parallel.DistributedDataParallel(module, bucket_cap_mb=ONE_BUCKET_MB)
        if name in hooks:
            wrapped[name].register_comm_hook(*hooks[name])
    seconds: dict[str, list[float]] = {name: [] for name in NAMES}
    for step in range(num_steps + WARM_UP):
        for name, ddp in wrapped.items():
            ddp.zero_grad()
            dist.barrier()
            begin = time.perf_counter()
            with labkit.span(name if step >= WARM_UP else "warm-up"):
                ddp(inputs).square().mean().backward()
            seconds[name].append(time.perf_counter() - begin)
    return {name: values[WARM_UP:] for name, values in seconds.items()}


def bytes_of_a_step(timeline: Timeline, name: str, num_steps: int) -> float:
    """Return the bytes that rank 0 handed to collectives in a step under this hook."""
    mine = timeline.spans(rank=0)
    spans = mine.select(mine.name == name)
    total = 0
    for start, end in zip(spans.start_ns.tolist(), spans.end_ns.tolist(), strict=True):
        inside = mine.select((mine.start_ns >= start) & (mine.start_ns <= end))
        total += sum(call.bytes for call in inside.collectives() if call.kind != "barrier")
    return total / num_steps


def run(quick: bool = False) -> tuple[str, list[Bar], dict[str, Any]]:
    """Return the table as text, the bars, and the figures as data."""
    num_steps = 10 if quick else 50
    rows: list[list[str]] = []
    bars: list[Bar] = []
    figures: dict[str, Any] = {}
    for model in MODELS:
        outcome = labkit.run(alternate, model, num_steps, on=labkit.local(2, device="cpu"), echo=False)
        assert outcome.timeline is not None
        seconds = {
            name: median(max(step) for step in zip(*(result[name] for result in outcome.results), strict=True))
            for name in NAMES
        }
        sent = {name: bytes_of_a_step(outcome.timeline, name, num_steps) for name in NAMES}
        figures[model] = {name: {"seconds": seconds[name], "bytes": sent[name]} for name in NAMES}
        rows += [[f"{model}, {name}", f"{sent[name] / 1e6:.3f} MB", f"{seconds[name] * 1e3:.2f} ms"] for name in NAMES]
        for (theirs, ours), limit in LIMITS.items():
            what = ours.removeprefix("solution's ")
            bars.append(Bar(f"{what}, {model}: bytes at most 1.05 x torch's", ratio(sent[ours], sent[theirs]), 1.05))
            bars.append(
                Bar(f"{what}, {model}: step at most {limit} x torch's", ratio(seconds[ours], seconds[theirs]), limit)
            )
    text = "bytes and time of a step under lesson 10's hooks beside torch's own, 2 processes, median of the slower rank"
    return "\n".join([text, table(["", "bytes", "step"], rows)]), bars, {"by_model": figures}
