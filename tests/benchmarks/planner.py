"""`labkit plan` beside published runs; nothing here is timed."""

from __future__ import annotations

from statistics import median
from typing import Any

from tests.benchmarks.table import Bar, table
from tests.planner.published_runs import cells, contradictions, foundry, memory, nanotron


def run(*, quick: bool = False) -> tuple[str, list[Bar], dict[str, Any]]:
    """Return the planner's errors by model and nodes as text, bars and figures."""
    found, held = cells(), memory()
    rows = [
        [
            f"{cell.model} on {cell.nodes} nodes", str(cell.num_runs), str(cell.num_stalled), f"{cell.error:.1%}",
            f"{cell.rank:.2f}", f"{cell.rank_unstalled:.2f}", f"{cell.pick:.1%}",
        ]
        for cell in found
    ]  # fmt: skip
    head = ["nanotron, H100", "runs", "stalled", "error", "rank", "without stalls", "pick"]
    twice, torn, apart = contradictions()
    errors = [error for _, _, error in foundry()]
    below = sorted(found, key=lambda cell: cell.pick)[:2]
    worst = max(found, key=lambda cell: cell.error)
    lines = [
        table(head, rows),
        f"  largest error: {worst.model} on {worst.nodes} nodes; {worst.num_stalled} of {worst.num_runs} runs stalled",
        f"  {twice} configurations were published twice: {torn} ran once and failed once, the others are "
        + " and ".join(f"{each:.2f}" for each in apart)
        + " times apart. They are left out above.",
        f"  memory: {held.error:.1%} off; runs or not: F1 {held.f1:.3f}, {held.unsafe:.1%} of the safe did not",
        f"  llm-foundry, FSDP, {len(errors)} runs in bfloat16, nothing fitted: {median(map(abs, errors)):.1%} in the "
        f"median, {median(errors):+.1%} as a mean error",
    ]
    bars = [
        Bar("median of the cells' rank correlations", median(cell.rank for cell in found), 0.90, at_least=True),
        Bar("median error of step time, all runs", median(abs(run.error) for run in nanotron() if run.seconds), 0.15),
        Bar("median cell's pick over the best measured", median(cell.pick for cell in found), 0.97, at_least=True),
        Bar("pick of the worst cell but one", below[1].pick, 0.85, at_least=True),
        Bar("runs or not, F1", held.f1, 0.93, at_least=True),
        Bar("safe plans that did not run", held.unsafe, 0.06),
        Bar("median error of memory", held.error, 0.10),
    ]
    return "\n".join(lines), bars, {"cells": [vars(cell) for cell in found]}
