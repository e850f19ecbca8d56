"""The pipeline of lesson 08's solution: its bubble predicted, virtual and measured, and its step beside the library's.

Two real processes, one thread each, take turns with `ScheduleGPipe` and `Schedule1F1B` of torch.distributed.pipelining.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import labkit
from labkit.lessons import source
from labkit.plans.pipeline_records import read_short
from labkit.plans.reference.schedules import FORMS
from tests.benchmarks.table import Bar, table

SOLUTION = Path(__file__).parents[2] / "solutions" / "08_pipeline.py"
PAIRS = (("gpipe", "ScheduleGPipe"), ("one_f_one_b", "Schedule1F1B"))
STAGES, WIDTH, SAMPLES, LAYERS = 2, 512, 512, 6


def solution() -> dict[str, Any]:
    """Return the names of lesson 08's given and exercise cells, and nothing else of it."""
    names: dict[str, Any] = {"__name__": "solution_08"}
    for cell in source.load(SOLUTION).cells:
        if cell.role == "given" or cell.is_code_exercise:
            exec(compile(cell.source, f"{SOLUTION.name}:{cell.id}", "exec", dont_inherit=True), names)
    return names


def _layers(width: int, num_layers: int, device: str) -> nn.Sequential:
    """Return that many linear layers, each followed by a ReLU, the same on every rank."""
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(width, width, device=device), nn.ReLU()) for _ in range(num_layers)))


def _job(
    names: dict[str, Any], write: str, count: int, device: str, num_samples: int, width: int, num_layers: int
) -> Any:
    """Return a function of no arguments that runs one step of this rank's stage, and its module."""
    stage, num_stages = dist.get_rank(), dist.get_world_size()
    module = _layers(width, num_layers, device)
    generator = None if device == "meta" else torch.Generator().manual_seed(1)
    whole = torch.randn(num_samples, width, device=device, generator=generator)
    first = stage == 0
    x = [part.clone().requires_grad_(first) for part in whole.chunk(count)]  # all stages then compute alike
    kinds = {"F": names["Forward"], "B": names["Backward"]}
    orders = [
        [kinds[op.kind](op.microbatch) for op in read_short(FORMS[write](each, num_stages, count), each)]
        for each in range(num_stages)
    ]
    schedule, sample = names["with_messages"](orders)[stage], torch.empty(width, device=device)
    targets = [part.detach() for part in x] if stage == num_stages - 1 else None
    step = partial(
        names["run_schedule"], schedule, module, [len(part) for part in x], sample, x if first else None, targets,
        nn.functional.mse_loss,
    )  # fmt: skip
    return step, module, whole


def one_step(names: dict[str, Any], write: str, count: int, device: str, shape: tuple[int, int, int]) -> None:
    """Run one step of this rank's stage, and nothing else, so that the timeline holds one step."""
    step, _, _ = _job(names, write, count, device, *shape)
    dist.barrier()
    step()


def take_turns(names: dict[str, Any], write: str, library: str, count: int, num_repeats: int) -> dict[str, list[float]]:
    """Return this rank's seconds of each repeat for both; the first is dropped. Their gradients must agree."""
    from torch.distributed import pipelining

    stage, num_stages = dist.get_rank(), dist.get_world_size()
    mine, own, whole = _job(names, write, count, "cpu", SAMPLES, WIDTH, LAYERS)
    theirs_module = _layers(WIDTH, LAYERS, "cpu")
    piece = pipelining.PipelineStage(theirs_module, stage, num_stages, torch.device("cpu"))
    schedule = getattr(pipelining, library)(piece, count, loss_fn=nn.functional.mse_loss)
    batch = whole.clone().requires_grad_()

    def theirs() -> None:
        if stage == 0:
            schedule.step(batch)
        else:
            schedule.step(target=whole)

    seconds: dict[str, list[float]] = {"own": [], "library": []}
    for _ in range(num_repeats + 1):
        for name, step, module in (("library", theirs, theirs_module), ("own", mine, own)):
            module.zero_grad()
            dist.barrier()
            begin = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - begin)
    pairs = list(zip(own.parameters(), theirs_module.parameters(), strict=True))
    worst = max(((a.grad - b.grad).abs().max() / (b.grad.abs().max() + 1e-12)).item() for a, b in pairs)
    if worst > 1e-3:
        raise ValueError(f"the gradients of {write} and {library} differ by {worst:.2g}")
    return {name: values[1:] for name, values in seconds.items()}


def _slowest(results: list[dict[str, list[float]]], name: str) -> float:
    """Return the median over repeats of the slowest rank's seconds."""
    return median(max(repeat) for repeat in zip(*(result[name] for result in results), strict=True))


def _bubble(timeline: Any) -> float:
    return float(labkit.schedule_explorer(run=timeline).numbers["run"]["bubble"])


def bubbles(names: dict[str, Any], quick: bool) -> tuple[list[list[str]], list[Bar], list[dict[str, float]]]:
    """Return rows, bars and figures of the bubble: by the formula, on the virtual cluster, on two real processes."""
    rows, bars, figures = [], [], []
    for count in (1, 2, 4, 8):
        predicted = names["bubble_share"](STAGES, count)
        entry: dict[str, float] = {"microbatches": count, "predicted": predicted}
        for write, _ in PAIRS:
            virtual = labkit.run(
                one_step, names, write, count, "meta", (16384, 16384, 16), on=labkit.virtual(STAGES), echo=False
            )
            entry[f"{write} virtual"] = _bubble(virtual.timeline)
            seen = []
            for _ in range(1 if quick else 5):
                real = labkit.run(
                    one_step, names, write, count, "cpu", (SAMPLES, WIDTH, LAYERS),
                    on=labkit.local(STAGES, device="cpu"), echo=False,
                )  # fmt: skip
                seen.append(_bubble(real.timeline))
            entry[f"{write} measured"] = min(seen)
            bars.append(
                Bar(
                    f"{write}, {STAGES} stages, {count} microbatches: virtual bubble off by at most 1 % of the formula",
                    abs(entry[f"{write} virtual"] / predicted - 1), 0.01,
                )
            )  # fmt: skip
        figures.append(entry)
        rows.append(
            [f"{count} microbatches", *(f"{value:.3f}" for key, value in entry.items() if key != "microbatches")]
        )
    return rows, bars, figures


def run(quick: bool = False) -> tuple[str, list[Bar], dict[str, Any]]:
    """Return the tables as text, the bars, and the figures as data."""
    names = solution()
    rows, bars, figures = bubbles(names, quick)
    head = ["", "formula", "gpipe virtual", "measured", "1f1b virtual", "measured"]
    text = [
        f"bubble of {STAGES} stages (measured: the least of {1 if quick else 5} runs on two processes)",
        table(head, rows),
    ]
    steps, times = [], []
    for write, library in PAIRS:
        for count in (2, 8):
            results = labkit.run(
                take_turns, names, write, library, count, 3 if quick else 15,
                on=labkit.local(STAGES, device="cpu"), echo=False,
            ).results  # fmt: skip
            own, theirs = _slowest(results, "own"), _slowest(results, "library")
            times.append({"schedule": write, "microbatches": count, "own_s": own, "library_s": theirs})
            steps.append(
                [
                    f"{write}, {count} microbatches",
                    f"{theirs * 1e3:.1f} ms",
                    f"{own * 1e3:.1f} ms",
                    f"{own / theirs:.2f}",
                ]
            )
            bars.append(Bar(f"step of {write}, {count} microbatches, at most 1.15 x {library}", own / theirs, 1.15))
    text += ["", f"step time, two processes, {LAYERS} layers of {WIDTH} a stage, {SAMPLES} samples"]
    text.append(table(["", "torch.distributed.pipelining", "solution", "ratio"], steps))
    return "\n".join(text), bars, {"bubble": figures, "step": times}
