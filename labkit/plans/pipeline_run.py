"""A pipeline's schedule as a run carried it out, and what it should have taken."""

from __future__ import annotations

import re
from statistics import median

from labkit.errors import ConfigError
from labkit.plans.pipeline import Placed, Schedule
from labkit.plans.pipeline_records import num_chunks, ops_of
from labkit.plans.pipeline_timing import place
from labkit.timeline.timeline import Timeline

_SPAN = re.compile(r"[FBIW]\d+(\.\d+)?")


def measured(name: str, timeline: Timeline) -> Schedule:
    """Return the schedule that a run carried out: its spans named F0, B0, ..., in seconds since the first began."""
    spans = [span for span in timeline.rows() if span.kind == "span" and _SPAN.fullmatch(span.name)]
    if not spans:
        raise ConfigError(
            f'{name} has no spans F0, B0, ...: wrap forward in labkit.span("F0") and backward in labkit.span("B0"), '
            "numbered by microbatch."
        )
    first = min(span.start_ns for span in spans)
    stages: list[list[Placed]] = [[] for _ in range(timeline.num_ranks)]
    for span in spans:
        (op,) = ops_of(span.name, span.rank)
        stages[span.rank].append(Placed(op, (span.start_ns - first) / 1e9, (span.end_ns - first) / 1e9))
    return Schedule(name, tuple(tuple(sorted(row, key=lambda placed: placed.start)) for row in stages))


def predicted(run: Schedule) -> Schedule:
    """Return a run's order as it would run if all operations of a kind took their median time and messages none."""
    lists = [[placed.op for placed in row] for row in run.stages]
    lasted: dict[str, list[float]] = {}
    for placed in (placed for row in run.stages for placed in row):
        lasted.setdefault(placed.op.kind, []).append(placed.end - placed.start)
    usual = {kind: median(times) * num_chunks(lists) for kind, times in lasted.items()}
    backward = usual.get("B", usual.get("I", 0.0) + usual.get("W", 0.0))
    return place(run.name, lists, usual.get("F", 0.0), backward)


def closed_form(schedule: Schedule) -> float:
    """Return (P-1)/(kM+P-1): the bubble with equal stages, messages that take no time and, with W, F = I = W.

    k is the number of chunks, and three times that where backward is in two parts: 1 for GPipe and 1F1B, 2 for
    interleaved 1F1B, 3 for ZB-H1, 6 for ZB-V.

    Source: Narayanan et al. 2021; Qi et al. 2023, where a stage of ZB-H1 waits (P-1)(F+I-W).
    """
    stages, every = len(schedule.stages), [[placed.op for placed in row] for row in schedule.stages]
    microbatches = {op.microbatch for row in every for op in row if op.kind == "F"}
    pieces = num_chunks(every) * (3 if any(op.kind == "W" for row in every for op in row) else 1)
    return (stages - 1) / max(pieces * len(microbatches) + stages - 1, 1)
