"""Orders of work, what every stage runs without messages: as they came, and as the interpreter plays them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from labkit.checks.declared import Mistake
from labkit.checks.finding import Finding
from labkit.checks.structure import NOTHING, Each, OneOf
from labkit.exercises.stages.record_text import record_text
from labkit.plans.pipeline import Schedule
from labkit.plans.pipeline_records import read_records
from labkit.plans.pipeline_timing import place
from labkit.words import plural

NO_ORDERS, NO_WORK, TWICE, LEFT_OUT, STUCK = (
    "not a list of records", "work that is not there", "work twice", "work left out", "nobody can go on",
)  # fmt: skip
NOT_A_LIST = Mistake(NO_ORDERS,
    "There is one list for each stage, and it holds that stage's records, Forward(m) and Backward(m). Join lists with "
    "+=; append puts a list into the list.")  # fmt: skip
NO_SUCH_WORK = Mistake(NO_WORK,
    "There are Forward and Backward here, of microbatches 0 to M-1. Messages are put in later.")  # fmt: skip
WORK_TWICE = Mistake(TWICE, "Each stage runs each microbatch forward once and backward once.")
WORK_LEFT_OUT = Mistake(LEFT_OUT,
    "Each stage runs every microbatch forward and backward. What is left at the end of your loop?")  # fmt: skip
NOBODY_GOES_ON = Mistake(STUCK,
    "Some work comes before what it needs: forward needs the same microbatch's forward on the stage before, backward "
    "needs this stage's forward and the backward of the stage behind.")  # fmt: skip

_RECORD = OneOf(({"kind": str, "microbatch": OneOf((int, str))}, str))
ORDERS = OneOf((Each(OneOf((Each(_RECORD), str))), str))
"""What comes of a function that returns every stage's order."""


def wrong_work(
    orders: Any, num_stages: int, count: int, kinds: Sequence[str] = ("Forward", "Backward"), num_chunks: int = 1
) -> Iterator[Finding]:
    """Yield what keeps orders from being all the work of every stage, each piece once.

    Args:
        orders: As they came.
        num_stages: How many there should be.
        count: Microbatches.
        kinds: What is done with each microbatch in each chunk.
        num_chunks: Chunks of a stage.
    """
    if orders is None:
        yield Finding(NOTHING, "The function returned None.")
        return
    if not isinstance(orders, list) or len(orders) != num_stages:
        what = plural(len(orders), "list") if isinstance(orders, list) else str(orders)
        yield Finding(NO_ORDERS, f"The function returned {what}, not one list for each of {num_stages} stages.")
        return
    wanted = {(kind, chunk, number) for kind in kinds for chunk in range(num_chunks) for number in range(count)}
    for stage, order in enumerate(orders):
        if not isinstance(order, list) or not all(isinstance(record, dict) for record in order):
            stray = order if not isinstance(order, list) else next(each for each in order if not isinstance(each, dict))
            yield Finding(NO_ORDERS, f"Stage {stage} has {stray} where a record should be.")
            return
        seen: set[tuple[Any, ...]] = set()
        for at, record in enumerate(order):
            key = _work(record)
            if key not in wanted:
                yield Finding(
                    NO_WORK, f"Record {at} of stage {stage} is {record_text(record)}; there is no such work with "
                    f"{count} microbatches here."
                )  # fmt: skip
            if key in seen:
                yield Finding(TWICE, f"Stage {stage} runs {record_text(record)} twice.")
            seen.add(key)
        missing = sorted(wanted - seen)
        if missing:
            kind, chunk, number = missing[0]
            where = f"chunk={chunk}, " if num_chunks > 1 else ""
            text = f"Stage {stage} never runs {kind}({where}microbatch={number})"
            text += f" and {len(missing) - 1} more." if len(missing) > 1 else "."
            yield Finding(LEFT_OUT, text)


def _work(record: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return kind, chunk and microbatch of a record; () where they are no numbers."""
    plain = 0 if not str(record.get("kind")).endswith("Chunk") else None
    found = (record.get("kind"), record.get("chunk", plain), record.get("microbatch"))
    return found if all(isinstance(each, int | str) for each in found) else ()


def played(orders: Sequence[Any], forward: int = 1, backward: int = 2) -> Schedule:
    """Return when the work of orders of the right form runs; messages take no time.

    Args:
        orders: Of every stage.
        forward: Turns of a microbatch's forward on one stage, all chunks together.
        backward: Turns of its backward, both parts together.
    """
    return place("", [read_records(order, stage) for stage, order in enumerate(orders)], forward, backward)


def stands_still(schedule: Schedule) -> Iterator[Finding]:
    """Yield that the stages of a played schedule never come to an end, and where they stand."""
    if schedule.stuck:
        yield Finding(STUCK, " ".join(schedule.faults[:3]))


def holds_more(schedule: Schedule, limit: Callable[[int], int], name: str) -> Iterator[Finding]:
    """Yield the stages of a played schedule that hold more microbatches than they may."""
    for stage in range(len(schedule.stages)):
        most, bound = round(schedule.peak(stage)), limit(stage)
        if most > bound:
            text = f"Stage {stage} holds {most} microbatches at once, forward done and backward not."
            yield Finding(name, text, f"at most {bound}", str(most))


def leading(order: Sequence[Any]) -> int:
    """Return how many forwards of an order of the right form stand before its first backward."""
    kinds = [record["kind"] for record in order]
    return kinds.index("Backward") if "Backward" in kinds else len(kinds)
