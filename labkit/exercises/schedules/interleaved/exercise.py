"""interleaved: what is asked, its cases, its mistakes and hints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from labkit.checks.exercise import Exercise
from labkit.checks.finding import Finding
from labkit.exercises.schedules.interleaved.driver import drive
from labkit.exercises.schedules.writing import LATE, SHAPES, finding, late, order_case, structure
from labkit.exercises.stages.orders import LEFT_OUT, NO_WORK, STUCK, played, stands_still, wrong_work
from labkit.plans.pipeline import most_held
from labkit.plans.pipeline_records import read_records

_BY_CHUNK, _FIRST_FIRST, _PLAIN, _GPIPE, _TOO_MUCH = (
    "chunk after chunk", "backward with the first chunk first", "the warm-up of plain 1F1B", "all forwards first",
    "holds too much",
)  # fmt: skip


def _wrong(orders: list[Any], pipeline: Sequence[int]) -> Iterator[Finding]:
    num_stages, count, num_chunks = pipeline
    yield from wrong_work(orders, num_stages, count, ("ForwardChunk", "BackwardChunk"), num_chunks)
    name = _of_order(orders, num_stages, count, num_chunks)
    for stage, order in enumerate(orders):
        bound = min(2 * (num_stages - 1 - stage) + (num_chunks - 1) * num_stages + 1, count * num_chunks)
        held = most_held(read_records(order, stage))
        if held > bound:
            text = f"Stage {stage} holds {held} pieces at once; {bound} are enough."
            yield Finding(name or _TOO_MUCH, text, str(bound), str(held))
    schedule = played(orders, num_chunks, num_chunks)
    for each in stands_still(schedule):
        yield Finding(name or each.mistake, each.message)
    yield from late(schedule.makespan, 2 * (count * num_chunks + num_stages - 1), name or LATE)


def _of_order(orders: Sequence[Sequence[Mapping[str, Any]]], num_stages: int, count: int, num_chunks: int) -> str:
    """Return which known mistake leads to such an order, or ""."""
    forwards = [record["chunk"] for record in orders[0] if record["kind"] == "ForwardChunk"]
    if count > num_stages and num_chunks > 1 and forwards[:count] == [0] * count:
        return _BY_CHUNK
    if num_chunks > 1 and orders[0][_leading(orders[0])]["chunk"] == 0:
        return _FIRST_FIRST
    if num_chunks > 1 and num_stages > 1 and _leading(orders[0]) <= num_stages:
        return _PLAIN
    if count > 2 * num_stages - 1 and num_stages > 1 and _leading(orders[-1]) == count * num_chunks:
        return _GPIPE
    return ""


def _leading(order: Sequence[Mapping[str, Any]]) -> int:
    """Return how many forwards stand before the first backward."""
    return [record["kind"] for record in order].index("BackwardChunk")


EXERCISE = Exercise(
    id="interleaved",
    functions=("interleaved",),
    driver=drive,
    oracle=lambda case: [],
    structure=structure,
    find=finding(_wrong),
    visible=(
        order_case("2 stages, 4 microbatches, 2 chunks", "interleaved", [(2, 4, 2)]),
        order_case("3 stages, 6 microbatches, 3 chunks; one chunk", "interleaved", [(3, 6, 3), (3, 6, 1)]),
        order_case("as many microbatches as stages", "interleaved", [(4, 4, 2), (2, 2, 3)]),
    ),
    given=("ForwardChunk", "BackwardChunk"),
    distributed=False,
    hints=(
        "Write down the order of the forwards for 2 ranks, 4 microbatches and 2 chunks. It is the same on both ranks.",
        "Microbatches go in groups of P: all P through chunk 0, then the same P through chunk 1, and so on. Backward "
        "goes the same way with the last chunk first. Then 1F1B on these two lists.",
        "The k-th forward is in group k // (P * V), at place k % (P * V) of it: chunk place // P, microbatch group "
        "* P + place % P; the k-th backward has chunk V - 1 - that. min(2 * (P - 1 - stage) + (V - 1) * P, M * V) "
        "forwards, then pairs of a forward and a backward, then the backwards that are left.",
    ),
    mistakes=SHAPES
    | {
        _BY_CHUNK: "All microbatches go through chunk 0 before the first goes through chunk 1: take groups of P "
        "microbatches.",
        _FIRST_FIRST: "Backward begins with chunk 0, but the last chunk's gradient is ready first.",
        _PLAIN: "The warm-up is too short for several chunks: 2 * (P - 1 - stage) + (V - 1) * P forwards.",
        _GPIPE: "All forwards come before all backwards; after the warm-up they take turns.",
        NO_WORK: "Records are ForwardChunk and BackwardChunk, for chunks 0 to V-1 and microbatches 0 to M-1.",
        LEFT_OUT: "Some of the work is missing: every chunk meets every microbatch, forward and backward.",
        STUCK: "Some work comes before what it needs: a chunk needs the same microbatch from the part before it.",
        _TOO_MUCH: "The warm-up is too long, so more is held than needed: 2 * (P - 1 - stage) + (V - 1) * P forwards.",
        LATE: "It finishes, but later than it could: look at the warm-up, and at the order of the groups.",
    },
)
