"""interleaved: what is asked, its cases, its mistakes and hints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from labkit.checks.case import Case, Values
from labkit.checks.judged import Mistake, judged
from labkit.exercises.pipeline.chunked import (
    first,
    form,
    judging,
    late_work,
    order_case,
    orders,
    said_of,
)
from labkit.exercises.pipeline.interleaved.driver import drive
from labkit.exercises.pipeline.writing import asked, structure
from labkit.plans.pipeline import most_held
from labkit.plans.pipeline_records import read_records


def _interleaved_best(pipeline: Sequence[int]) -> int:
    num_stages, count, num_chunks = pipeline
    return 2 * (count * num_chunks + num_stages - 1)


def _interleaved_oracle(case: Case) -> list[Values]:
    return [{"makespans": [_interleaved_best(pipeline) for pipeline in asked(case)]}]


def _interleaved_problem(schedules: Sequence[Any], pipeline: Sequence[int]) -> str:
    num_stages, count, num_chunks = pipeline
    problem = form(schedules, ("ForwardChunk", "BackwardChunk"), num_chunks, count)
    if problem:
        return problem
    for stage, order in enumerate(schedules):
        bound = min(2 * (num_stages - 1 - stage) + (num_chunks - 1) * num_stages + 1, count * num_chunks)
        held = most_held(read_records(order, stage))
        if held > bound:
            return f"Stage {stage} holds {held} pieces at once; this schedule holds at most {bound}."
    return late_work(schedules, num_chunks, num_chunks, _interleaved_best(pipeline))


EXERCISE = judged(
    id="interleaved",
    functions=("interleaved",),
    given=("ForwardChunk", "BackwardChunk"),
    driver=drive,
    oracle=_interleaved_oracle,
    structure=structure,
    judge=judging(_interleaved_problem),
    visible=(
        order_case("2 stages, 4 microbatches, 2 chunks", "interleaved", [(2, 4, 2)]),
        order_case("3 stages, 6 microbatches, 3 chunks; one chunk", "interleaved", [(3, 6, 3), (3, 6, 1)]),
        order_case("as many microbatches as stages", "interleaved", [(4, 4, 2), (2, 2, 3)]),
    ),
    distributed=False,
    hints=(
        "Write down the order of the forwards for 2 ranks, 4 microbatches and 2 chunks. It is the same on both ranks.",
        "The k-th forward is in group k // (P * V), at place k % (P * V) of it: chunk place // P, microbatch group * "
        "P + place % P. The k-th backward has chunk V - 1 - that, and the same microbatch.",
        "warmup = min(2 * (P - 1 - stage) + (V - 1) * P, M * V); order = forwards[:warmup]; for the others: forward, "
        "then the next backward; then backwards[M * V - warmup:].",
    ),
    mistakes=(
        Mistake(
            "chunk after chunk",
            "All microbatches go through chunk 0 before the first goes through chunk 1: take groups of P microbatches.",
            orders(
                lambda s, p: (
                    p[1] > p[0]
                    and p[2] > 1
                    and [r.get("chunk") for r in s[0] if r["kind"] == "ForwardChunk"][: p[1]] == [0] * p[1]
                )
            ),
        ),
        Mistake(
            "backward with the first chunk first",
            "Backward begins with chunk 0: the last chunk's gradient is there first.",
            orders(
                lambda s, p: (
                    p[2] > 1
                    and any(
                        r["kind"] == "BackwardChunk" and r.get("chunk") == 0
                        for r in s[0][: first(s[0], "BackwardChunk") + 1]
                    )
                )
            ),
        ),
        Mistake(
            "the warm-up of plain 1F1B",
            "The warm-up is too short for several chunks: 2 * (P - 1 - stage) + (V - 1) * P forwards.",
            orders(lambda s, p: p[2] > 1 and p[0] > 1 and first(s[0], "BackwardChunk") <= p[0]),
        ),
        Mistake(
            "all forwards first",
            "All forwards come before all backwards; after the warm-up they take turns.",
            orders(lambda s, p: p[1] > 2 * p[0] - 1 and p[0] > 1 and first(s[-1], "BackwardChunk") == p[1] * p[2]),
        ),
        Mistake(
            "work left out",
            "Some of the work is missing: every chunk meets every microbatch, forward and backward.",
            said_of(_interleaved_problem, "never does"),
        ),
        Mistake(
            "deadlock",
            "Some work comes before what it needs: a chunk needs the same microbatch from the part before it.",
            said_of(_interleaved_problem, "Nobody can go on"),
        ),
        Mistake(
            "holds too much",
            "The warm-up is too long, so more is held than needed: 2 * (P - 1 - stage) + (V - 1) * P forwards.",
            said_of(_interleaved_problem, "pieces at once"),
        ),
        Mistake(
            "waits without need",
            "It comes to an end, later than it could: look at the warm-up, and at the order of the groups.",
            said_of(_interleaved_problem, "are enough"),
        ),
    ),
)
