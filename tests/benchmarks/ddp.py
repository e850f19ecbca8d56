"""A training step under the solution's BucketedDDP beside torch's own DDP, on two real processes, for three models."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import labkit
from labkit.lessons import source
from tests.benchmarks.table import Bar, ratio, table

SOLUTION = Path(__file__).parents[2] / "solutions" / "04_ddp.py"
LIMIT = 1.15

Wrapper = Callable[[nn.Module], Any]


def solution(name: str) -> Wrapper:
    """Return a class of lesson 04's solution: its given and exercise cells, and nothing else of it, are run."""
    names: dict[str, Any] = {"__name__": "solution_04"}
    for cell in source.load(SOLUTION).cells:
        if cell.role == "given" or cell.is_code_exercise:
            exec(compile(cell.source, f"{SOLUTION.name}:{cell.id}", "exec", dont_inherit=True), names)
    found: Wrapper = names[name]
    return found


def few_large() -> tuple[nn.Module, Tensor]:
    """Return four layers of 1024, 17 MB, and a batch."""
    return nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(4))), torch.randn(64, 1024)


def many_small() -> tuple[nn.Module, Tensor]:
    """Return sixty layers of 128, 120 parameters, 4 MB, and a batch."""
    layers = [layer for _ in range(60) for layer in (nn.Linear(128, 128), nn.ReLU())]
    return nn.Sequential(*layers), torch.randn(128, 128)


def convolutions() -> tuple[nn.Module, Tensor]:
    """Return a small convolutional network with BatchNorm, 1.2 MB and buffers, and a batch."""
    widths = (3, 32, 64, 128, 128)
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)), torch.randn(16, 3, 32, 32)


MODELS: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "4 layers of 1024": few_large,
    "60 layers of 128": many_small,
    "4 convolutions, BatchNorm": convolutions,
}


def alternate(
    wrapper: Wrapper, model_of: Callable[[], tuple[nn.Module, Tensor]], num_steps: int
) -> dict[str, list[float]]:
    """Return this rank's seconds of each step for both; they take turns, and the first steps are thrown away."""
    torch.manual_seed(0)
    wrapped: dict[str, Any] = {}
    for name, wrap in (("torch", nn.parallel.DistributedDataParallel), ("solution", wrapper)):
        model, inputs = model_of()
        wrapped[name] = wrap(model)
    seconds: dict[str, list[float]] = {name: [] for name in wrapped}
    for _ in range(num_steps + 3):
        for name, ddp in wrapped.items():
            ddp.zero_grad()
            dist.barrier()
            begin = time.perf_counter()
            ddp(inputs).square().mean().backward()
            if name == "solution":
                ddp.finish_gradient_synchronization()
            seconds[name].append(time.perf_counter() - begin)
    return {name: values[3:] for name, values in seconds.items()}


def _slowest(results: list[dict[str, list[float]]], name: str) -> float:
    """Return the median over steps of the slowest rank's seconds."""
    return median(max(step) for step in zip(*(result[name] for result in results), strict=True))


def run(quick: bool = False) -> tuple[str, list[Bar], dict[str, Any]]:
    """Return the table as text, the bars, and the figures as data."""
    wrapper = solution("BucketedDDP")
    rows, bars, figures = [], [], {}
    for name, model_of in MODELS.items():
        world = labkit.local(2, device="cpu")
        results = labkit.run(alternate, wrapper, model_of, 10 if quick else 60, on=world, echo=False).results
        torchs, ours = _slowest(results, "torch"), _slowest(results, "solution")
        figures[name] = {"torch_s": torchs, "solution_s": ours}
        rows.append([name, f"{torchs * 1e3:.2f} ms", f"{ours * 1e3:.2f} ms", f"{ours / torchs:.2f}"])
        bars.append(Bar(f"BucketedDDP, {name}, at most {LIMIT} x torch's DDP", ratio(ours, torchs), LIMIT))
    text = (
        "a step under the solution's BucketedDDP beside torch's DDP, 2 processes, median over steps of the slower rank"
    )
    return "\n".join([text, table(["", "torch", "solution", "ratio"], rows)]), bars, {"by_model": figures}
