"""The solution's ring_all_reduce beside gloo's own all_reduce, in the same processes, one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

import labkit
from labkit.lessons import source
from tests.benchmarks.table import Bar, table

KB = 1024
SIZES = (64 * KB, 256 * KB, 1024 * KB, 4096 * KB, 16384 * KB, 65536 * KB)
LARGE = 16384 * KB
SOLUTION = Path(__file__).parents[2] / "solutions" / "03_collectives.py"

AllReduce = Callable[..., object]


def solution(name: str) -> AllReduce:
    """Return a function of lesson 03's solution: its given and exercise cells, and nothing else of it, are run."""
    names: dict[str, Any] = {"__name__": "solution_03"}
    for cell in source.load(SOLUTION).cells:
        if cell.role == "given" or cell.is_code_exercise:
            exec(compile(cell.source, f"{SOLUTION.name}:{cell.id}", "exec", dont_inherit=True), names)
    found: AllReduce = names[name]
    return found


def alternate(ring: AllReduce, num_bytes: int, num_repeats: int) -> dict[str, list[float]]:
    """Return this rank's seconds of each repeat for both; they take turns, and the first of each is thrown away."""
    tensor = torch.ones(num_bytes // 4)
    seconds: dict[str, list[float]] = {"gloo": [], "ring": []}
    for _ in range(num_repeats + 1):
        for name, all_reduce in (("gloo", dist.all_reduce), ("ring", ring)):
            tensor.fill_(1.0)
            dist.barrier()
            begin = time.perf_counter()
            all_reduce(tensor)
            seconds[name].append(time.perf_counter() - begin)
            if tensor[0] != dist.get_world_size() or tensor[-1] != dist.get_world_size():
                raise ValueError(f"{name} gave {tensor[0]} on {dist.get_world_size()} ranks")
    return {name: values[1:] for name, values in seconds.items()}


def _slowest(results: list[dict[str, list[float]]], name: str) -> float:
    """Return the median over repeats of the slowest rank's seconds."""
    return median(max(repeat) for repeat in zip(*(result[name] for result in results), strict=True))


def _one_call(ring: AllReduce, num_bytes: int) -> float:
    tensor = torch.ones(num_bytes // 4)
    for _ in range(3):
        dist.barrier()
        with labkit.span("ring"):
            ring(tensor)
    chunk = tensor.numel() // dist.get_world_size()
    mine, theirs = tensor[:chunk], torch.ones(chunk)
    adds = []
    for _ in range(5):
        dist.barrier()
        begin = time.perf_counter()
        mine += theirs
        adds.append(time.perf_counter() - begin)
    return median(adds)


def where_time_goes(ring: AllReduce, world_size: int, num_bytes: int) -> str:
    """Return, in words, how rank 0's time in one call splits into transfer, addition and the rest."""
    run = labkit.run(_one_call, ring, num_bytes, on=labkit.local(world_size, device="cpu"), echo=False)
    spans = [span for span in run.timeline.rows() if span.rank == 0]
    call = [span for span in spans if span.name == "ring"][-1]
    moving = [(span.start_ns, span.end_ns) for span in spans if span.lane.name == "COMMUNICATION"]
    inside = sorted((max(a, call.start_ns), min(b, call.end_ns)) for a, b in moving)
    transfer, until = 0, call.start_ns
    for begin, end in inside:
        transfer += max(0, end - max(begin, until))
        until = max(until, end)
    total = call.end_ns - call.start_ns
    add = int(run.results[0] * 1e9) * (world_size - 1)
    rest = total - transfer - add
    return (
        f"{world_size} ranks, {num_bytes // KB // KB} MB, rank 0: {total / 1e6:.1f} ms = transfer "
        f"{transfer / 1e6:.1f} + {world_size - 1} additions {add / 1e6:.1f} + Python and allocation {rest / 1e6:.1f}"
    )


def run(quick: bool = False) -> tuple[str, list[Bar], dict[str, Any]]:
    """Return the table as text, the bars, and the figures as data."""
    ring = solution("ring_all_reduce")
    figures: dict[str, list[dict[str, float]]] = {}
    rows, bars, words = [], [], []
    for world_size in (2, 4):
        figures[str(world_size)] = []
        for num_bytes in SIZES:
            repeats = 5 if quick else max(7, min(40, 2**28 // num_bytes))
            world = labkit.local(world_size, device="cpu")
            results = labkit.run(alternate, ring, num_bytes, repeats, on=world, echo=False).results
            gloo, own = _slowest(results, "gloo"), _slowest(results, "ring")
            bandwidth = {"gloo": num_bytes / gloo / 1e9, "ring": num_bytes / own / 1e9}
            figures[str(world_size)].append({"bytes": num_bytes, "gloo_s": gloo, "ring_s": own})
            size = f"{num_bytes // KB} KB" if num_bytes < KB * KB else f"{num_bytes // KB // KB} MB"
            rows.append([
                f"{world_size} ranks, {size}",
                f"{gloo * 1e3:.2f} ms",
                f"{own * 1e3:.2f} ms",
                f"{bandwidth['gloo']:.2f}",
                f"{bandwidth['ring']:.2f}",
                f"{gloo / own:.2f}",
            ])  # fmt: skip
            if num_bytes >= LARGE:
                bars.append(Bar(f"ring, {world_size} ranks, {size}, at least 0.7 x gloo", gloo / own, 0.7, True))
                if not bars[-1].met:
                    words.append("  " + where_time_goes(ring, world_size, num_bytes))
    head = ["", "gloo", "ring", "gloo GB/s", "ring GB/s", "ring / gloo"]
    lines = [
        "ring_all_reduce of lesson 03's solution beside gloo's all_reduce, median over repeats of the slowest rank"
    ]
    lines += [table(head, rows), *words]
    return "\n".join(lines), bars, {"by_ranks": figures, "where_time_goes": words}
