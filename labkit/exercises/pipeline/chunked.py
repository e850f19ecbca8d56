"""Schedules with smaller bubbles: the order of the work alone, timed with messages that take no time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from labkit.checks.case import Case, Got, Value
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire
from labkit.exercises.pipeline.timing import said
from labkit.exercises.pipeline.writing import asked, came
from labkit.plans.pipeline_records import read_records
from labkit.plans.pipeline_timing import place


def order_case(name: str, function: str, pipelines: Sequence[tuple[int, ...]]) -> Case:
    """Return a case that asks for the order of work of all stages of each pipeline."""
    listed: list[Value] = [list(each) for each in pipelines]
    return Case(name, 1, ({"function": function, "pipelines": listed},))


def _work(record: Any) -> tuple[Any, ...]:
    """Return kind, chunk and microbatch of a record; () for what is none."""
    if not isinstance(record, dict):
        return ()
    plain = 0 if not str(record.get("kind")).endswith("Chunk") else None
    found = (record.get("kind"), record.get("chunk", plain), record.get("microbatch"))
    return found if all(isinstance(each, int | str) for each in found) else ()


def form(schedules: Sequence[Any], kinds: Sequence[str], num_chunks: int, count: int) -> str:
    """Return what keeps orders from being all the work of each stage, each once; or ""."""
    wanted = {(kind, chunk, m) for kind in kinds for chunk in range(num_chunks) for m in range(count)}
    for stage, order in enumerate(schedules):
        if not isinstance(order, list):
            return f"Stage {stage} returned {order}; asked for is a list of records."
        seen = set()
        for position, record in enumerate(order):
            key = _work(record)
            if key not in wanted:
                return f"Record {position} of stage {stage} is {said(record)}; there is no such work here."
            if key in seen:
                return f"Stage {stage} does {said(record)} twice."
            seen.add(key)
        missing = sorted(wanted - seen)
        if missing:
            kind, chunk, microbatch = missing[0]
            where = f"chunk={chunk}, " if num_chunks > 1 else ""
            return f"Stage {stage} never does {kind}({where}microbatch={microbatch}), and lacks {len(missing)} in all."
    return ""


def late_work(schedules: Sequence[Any], forward: int, backward: int, best: int) -> str:
    """Return in words that nobody can go on, or that it takes longer than it must; or "".

    Args:
        schedules: Of every stage.
        forward: Turns of a microbatch's forward on one stage, all chunks together.
        backward: Turns of its backward.
        best: Turns it may take.
    """
    outcome = place("", [read_records(order, stage) for stage, order in enumerate(schedules)], forward, backward)
    if outcome.stuck:
        return "Nobody can go on: some work stands before what it needs."
    return f"It takes {outcome.makespan:g} turns; {best} are enough." if round(outcome.makespan) > best else ""


Problem = Callable[[Sequence[Any], Sequence[int]], str]


def judging(problem_of: Problem) -> Callable[[Case, Got, Wire], Verdict]:
    """Return the judge that says the first problem of any pipeline."""

    def judge(case: Case, got: Got, wire: Wire) -> Verdict:
        for pipeline, schedules in zip(asked(case), came(case, got), strict=True):
            problem = problem_of(schedules, pipeline)
            if problem:
                names = ("stages", "microbatches", "chunks")
                head = ", ".join(f"{value} {name}" for value, name in zip(pipeline, names, strict=False))
                return Verdict(False, message=f"{head}: {problem}")
        return Verdict(True)

    return judge


def said_of(problem_of: Problem, words: str) -> Callable[[Case, Got, Wire], bool]:
    """Return whether the problem of some pipeline has these words."""
    return lambda case, got, wire: any(
        words in problem_of(schedules, pipeline)
        for pipeline, schedules in zip(asked(case), came(case, got), strict=False)
    )


def orders(
    test: Callable[[list[list[Mapping[str, Any]]], list[int]], bool],
) -> Callable[[Case, Got, Wire], bool]:
    """Return whether the orders of some pipeline pass a test; those that are no orders do not."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        return any(
            all(isinstance(order, list) and all(isinstance(each, dict) for each in order) for order in schedules)
            and test(schedules, pipeline)
            for pipeline, schedules in zip(asked(case), came(case, got), strict=False)
        )

    return seen


def first(order: Sequence[Mapping[str, Any]], kind: str) -> int:
    """Return the place of the first record of a kind; the length where there is none."""
    places = [place for place, record in enumerate(order) if record["kind"] == kind]
    return min(places, default=len(order))
