"""`labkit plan` beside published runs, and beside steps on the virtual cluster; only the planning is timed."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

from labkit.planner.model import MODELS
from labkit.planner.plan import Job, best_plans
from labkit.planner.reasons import what_would_change_it
from tests.benchmarks.table import Bar, table
from tests.planner.published_runs import cells, contradictions, foundry, memory, nanotron, other_systems
from tests.planner.simulated_plans import H100S, every_small_plan, verified


def run(*, quick: bool = False) -> tuple[str, list[Bar], dict[str, Any]]:
    """Return the planner's errors by model and nodes as text, bars and figures."""
    found, held = cells(), memory()
    rows = [
        [
            f"{cell.model} on {cell.nodes} nodes", str(cell.num_runs), str(cell.num_polled), f"{cell.error:.1%}",
            f"{cell.rank:.2f}", f"{cell.rank_unpolled:.2f}", f"{cell.pick:.1%}",
        ]
        for cell in found
    ]  # fmt: skip
    head = ["nanotron, H100", "runs", "polled", "error", "rank", "without these", "pick"]
    twice, torn, apart = contradictions()
    errors = [error for _, _, error in foundry()]
    below = sorted(found, key=lambda cell: cell.pick)[:2]
    worst = max(found, key=lambda cell: cell.error)
    lines = [
        table(head, rows),
        f"  largest error: {worst.model} on {worst.nodes} nodes; {worst.num_polled} of {worst.num_runs} runs polled",
        f"  {twice} configurations were published twice: {torn} ran once and failed once, the others are "
        + " and ".join(f"{each:.2f}" for each in apart)
        + " times apart. They are left out above.",
        f"  memory: {held.error:.1%} off; runs or not: F1 {held.f1:.3f}, {held.unsafe:.1%} of the safe did not",
        f"  llm-foundry, FSDP, {len(errors)} runs in bfloat16, nothing fitted: {median(map(abs, errors)):.1%} in the "
        f"median, {median(errors):+.1%} as a mean error",
        *(
            f"  {system}, {len(runs)} runs, nothing fitted: {median(map(abs, runs.values())):.1%} in the median, "
            f"{max(map(abs, runs.values())):.1%} at worst"
            for system, runs in other_systems().items()
        ),
    ]
    bars = [
        Bar("median of the cells' rank correlations", median(cell.rank for cell in found), 0.90, at_least=True),
        Bar("median error of step time, all runs", median(abs(run.error) for run in nanotron() if run.seconds), 0.15),
        Bar("median cell's pick over the best measured", median(cell.pick for cell in found), 0.97, at_least=True),
        Bar("pick of the worst cell but one", below[1].pick, 0.85, at_least=True),
        Bar("runs or not, F1", held.f1, 0.93, at_least=True),
        Bar("safe plans that did not run", held.unsafe, 0.06),
        Bar("median error of memory", held.error, 0.10),
        *(
            Bar(f"median error of {system}", median(map(abs, runs.values())), 0.15)
            for system, runs in other_systems().items()
        ),
    ]
    text, more = _on_cluster(3 if quick else 20, exhaustive=not quick)
    took, at_512 = _planning()
    return "\n".join([*lines, text, took]), [*bars, *more, at_512], {"cells": [vars(cell) for cell in found]}


def _on_cluster(count: int, *, exhaustive: bool) -> tuple[str, list[Bar]]:
    """Return what drawn plans for 64 ranks are off, and what the best plan loses to an exhaustive search."""
    found = verified(count)
    rows = [
        [
            each.plan.job.model.name, str(each.plan.layout), f"{1e3 * each.simulated.seconds:.0f}",
            f"{each.error:+.1%}", each.differences()[0][0], f"{each.memory_error:+.1%}",
        ]
        for each in found
    ]  # fmt: skip
    lines = [table(["drawn, 64 H100s", "layout", "simulated, ms", "error", "most off", "memory"], rows)]
    bars = [
        Bar("median error of drawn plans, simulated", median(abs(each.error) for each in found), 0.10),
        Bar("median error of their memory", median(abs(each.memory_error) for each in found), 0.10),
    ]
    if exhaustive:
        every = list(every_small_plan())
        best = min(every, key=lambda each: each.simulated.seconds)
        picked = min(every, key=lambda each: each.plan.seconds)
        lost = picked.simulated.seconds / best.simulated.seconds - 1
        lines.append(
            f"  {len(every)} plans of a small job on 8: the best is {best.plan.layout}, the planner's "
            f"{picked.plan.layout}, {lost:.1%} slower"
        )
        bars.append(Bar("its pick behind exhaustive search", lost, 0.05))
    return "\n".join(lines), bars


def _planning() -> tuple[str, Bar]:
    """Return how long planning Llama 3 70B on 512 GPUs takes."""
    job, begin = Job(MODELS["llama3-70b"], 512, 512, H100S), time.perf_counter()
    best = best_plans(job, 5)
    for plan in best[:1]:
        what_would_change_it(plan)
    seconds = time.perf_counter() - begin
    return f"  Llama 3 70B on 512 GPUs planned in {seconds:.2f} s", Bar("planning 512 GPUs, s", seconds, 2.0)
