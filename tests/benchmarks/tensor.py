"""Lesson 12's GPT beside torch's own tensor parallelism on one model: bytes, virtual time, real ranks in one run."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor.parallel import loss_parallel

import labkit
from labkit.lessons import source
from labkit.models import GPT
from labkit.timeline.metrics import busbw_factor, hidden_communication_share, lane_times
from tests.benchmarks.table import Bar, ratio, table
from tests.simulator.torchs_tensor_parallel import loss_of_torchs, parallelized

SOLUTION = Path(__file__).parents[2] / "solutions" / "12_tensor_parallel.py"
Step = Callable[[], None]


def solution() -> dict[str, Any]:
    """Return what lesson 12's solution defines: its given and exercise cells, and nothing else of it, are run."""
    names: dict[str, Any] = {"__name__": "solution_12"}
    for cell in source.load(SOLUTION).cells:
        if cell.role == "given" or cell.is_code_exercise:
            exec(compile(cell.source, f"{SOLUTION.name}:{cell.id}", "exec", dont_inherit=True), names)
    return names


def batch(num_tokens: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tokens and targets, the same on every rank."""
    text = torch.randint(0, 12, (size, num_tokens + 1), generator=torch.Generator().manual_seed(1))
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def steps_of(names: dict[str, Any], width: int, num_tokens: int, size: int) -> dict[str, Step]:
    """Return forward and backward of each of the three, on this rank."""
    tokens, targets = batch(num_tokens, size)
    shape: dict[str, int] = {"num_layers": 4, "width": width, "num_heads": 8, "num_tokens": num_tokens}
    mine = names["ParallelGPT"](GPT(**shape))

    def ours() -> None:
        torch.autograd.backward(names["parallel_loss"](mine, tokens, targets))

    def torchs(sequence: bool) -> Step:
        model = parallelized(GPT(**shape), sequence)

        def step() -> None:
            with loss_parallel():
                torch.autograd.backward(loss_of_torchs(model, tokens, targets, sequence))

        return step

    return {"labkit": ours, "torch": torchs(False), "torch, sequence": torchs(True)}


def one_step(names: dict[str, Any], name: str, width: int, num_tokens: int, size: int) -> None:
    """Take one step of one of the three, and nothing else that communicates."""
    steps_of(names, width, num_tokens, size)[name]()


def timed(names: dict[str, Any], repeats: int) -> dict[str, list[float]]:
    """Return the seconds of each step, taken in turn on the same ranks."""
    steps = steps_of(names, 256, 64, 16)
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for repeat in range(repeats + 1):
        for name, step in steps.items():
            dist.barrier()
            begin = time.perf_counter()
            step()
            dist.barrier()
            if repeat:
                seconds[name].append(time.perf_counter() - begin)
    return seconds


def run(*, quick: bool) -> tuple[str, list[Bar], dict[str, Any]]:
    """Return a table, the bars, and every figure."""
    names, size = solution(), (256, 64, 8) if quick else (512, 128, 8)
    rows, figures = [], {}
    real = labkit.run(timed, names, 3 if quick else 15, on=labkit.local(2, device="cpu"), echo=False).results[0]
    for name in ("labkit", "torch", "torch, sequence"):
        timeline: Any = labkit.run(one_step, names, name, *size, on=labkit.virtual(4), echo=False).timeline
        mine = [call for call in timeline.collectives() if call.rank == 0]
        moved = round(sum(call.bytes * busbw_factor(call.kind, 4) for call in mine))
        exposed = (1 - hidden_communication_share(timeline, 0)) * float(lane_times(timeline).communication_ns[0])
        figures[name] = {
            "bytes": moved, "exposed_us": exposed / 1e3, "step_us": timeline.makespan_ns / 1e3,
            "real_ms": 1e3 * median(real[name]),
        }  # fmt: skip
        each = figures[name]
        rows.append(
            [name, *(f"{each[key]:,.0f}" for key in ("bytes", "exposed_us", "step_us")), f"{each['real_ms']:.1f}"]
        )
    head = ["4 virtual H100s, forward and backward", "bytes a rank sends", "exposed us", "step us", "2 real ranks, ms"]
    bars = [
        Bar(f"{what} at most those of {peer}", ratio(figures["labkit"][key], figures[peer][key]), 1.0)
        for peer in ("torch", "torch, sequence")
        for key, what in (("bytes", "bytes"), ("exposed_us", "exposed virtual microseconds"))
    ]
    return table(head, rows), bars, {"figures": figures}
