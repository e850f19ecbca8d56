"""Schedules with smaller bubbles: the order of the work alone, timed with messages that take no time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from labkit.checks.case import Case, Got, Value
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire
from labkit.exercises.pipeline.timing import said
from labkit.exercises.pipeline.writing import asked, came

Key = tuple[Any, ...]


Needs = Callable[[Key, Sequence[int]], list[Key]]
"""What must be done before: a key is (stage, kind, chunk, microbatch); beside it the pipeline's arguments."""


def order_case(name: str, function: str, pipelines: Sequence[tuple[int, ...]]) -> Case:
    """Return a case that asks for the order of work of all stages of each pipeline."""
    listed: list[Value] = [list(each) for each in pipelines]
    return Case(name, 1, ({"function": function, "pipelines": listed},))


def _key(stage: int, record: Mapping[str, Any]) -> Key:
    return stage, record["kind"], record.get("chunk", 0), record["microbatch"]


def finish(orders: Sequence[Sequence[Mapping[str, Any]]], pipeline: Sequence[int], needs: Needs) -> int | None:
    """Return when the last of the work is done, each piece lasting 1; None where somebody waits for ever."""
    known = {_key(stage, record) for stage, order in enumerate(orders) for record in order}
    before: dict[Key, list[Key]] = {}
    for stage, order in enumerate(orders):
        keys = [_key(stage, record) for record in order]
        for place, key in enumerate(keys):
            before[key] = needs(key, pipeline) + keys[max(place - 1, 0) : place]
    ends: dict[Key, int] = {}
    waiting = {key: {each for each in needed if each in known} for key, needed in before.items()}
    ready = [key for key, needed in waiting.items() if not needed]
    behind: dict[Key, list[Key]] = {}
    for key, needed in before.items():
        for each in needed:
            behind.setdefault(each, []).append(key)
    while ready:
        key = ready.pop()
        ends[key] = 1 + max((ends[each] for each in before[key] if each in known), default=0)
        for other in behind.get(key, ()):
            waiting[other].discard(key)
            if not waiting[other] and other not in ends and other not in ready:
                ready.append(other)
    return max(ends.values(), default=0) if len(ends) == len(before) else None


def form(schedules: Sequence[Any], kinds: Sequence[str], num_chunks: int, count: int) -> str:
    """Return what keeps orders from being all the work of each stage, each once; or ""."""
    wanted = {(kind, chunk, m) for kind in kinds for chunk in range(num_chunks) for m in range(count)}
    for stage, order in enumerate(schedules):
        if not isinstance(order, list):
            return f"Stage {stage} returned {order}; asked for is a list of records."
        seen = set()
        for place, record in enumerate(order):
            key = (
                (record.get("kind"), record.get("chunk", 0), record.get("microbatch"))
                if isinstance(record, dict)
                else ()
            )
            if key not in wanted:
                return f"Record {place} of stage {stage} is {said(record)}; there is no such work here."
            if key in seen:
                return f"Stage {stage} does {said(record)} twice."
            seen.add(key)
        missing = sorted(wanted - seen)
        if missing:
            kind, chunk, microbatch = missing[0]
            where = f"chunk={chunk}, " if num_chunks > 1 else ""
            return f"Stage {stage} never does {kind}({where}microbatch={microbatch}), and lacks {len(missing)} in all."
    return ""


def most_held(order: Sequence[Mapping[str, Any]], begins: str, ends: str) -> int:
    """Return the most that has begun and not ended at any time."""
    now = most = 0
    for record in order:
        now += (record["kind"] == begins) - (record["kind"] == ends)
        most = max(most, now)
    return most


def late_work(schedules: Sequence[Any], pipeline: Sequence[int], needs: Needs, best: int) -> str:
    """Return in words that nobody can go on, or that it takes longer than it must; or ""."""
    makespan = finish(schedules, pipeline, needs)
    if makespan is None:
        return "Nobody can go on: some work stands before what it needs."
    return f"It takes {makespan} turns; {best} are enough." if makespan > best else ""


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
