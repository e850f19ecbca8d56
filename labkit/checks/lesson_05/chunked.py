"""Schedules with smaller bubbles: the order of the work alone, timed with messages that take no time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from labkit.checks.case import Case, Got, Value, Values
from labkit.checks.drivers.lesson_05 import write_schedules
from labkit.checks.exercise import Exercise
from labkit.checks.lesson_05.timing import said
from labkit.checks.lesson_05.writing import asked, came
from labkit.checks.verdict import Mistake, Verdict
from labkit.checks.wire import Wire
from labkit.plans.pipeline import most_held
from labkit.plans.pipeline_records import read_records
from labkit.plans.pipeline_timing import place


def order_case(name: str, function: str, pipelines: Sequence[tuple[int, ...]]) -> Case:
    """Return a case that asks for the order of work of all stages of each pipeline."""
    listed: list[Value] = [list(each) for each in pipelines]
    return Case(name, 1, ({"function": function, "pipelines": listed},))


def _form(schedules: Sequence[Any], kinds: Sequence[str], num_chunks: int, count: int) -> str:
    wanted = {(kind, chunk, m) for kind in kinds for chunk in range(num_chunks) for m in range(count)}
    for stage, order in enumerate(schedules):
        if not isinstance(order, list):
            return f"Stage {stage} returned {order}; asked for is a list of records."
        seen = set()
        for position, record in enumerate(order):
            key = (
                (record.get("kind"), record.get("chunk", 0), record.get("microbatch"))
                if isinstance(record, dict)
                else ()
            )
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


def _interleaved_best(pipeline: Sequence[int]) -> int:
    num_stages, count, num_chunks = pipeline
    return 2 * (count * num_chunks + num_stages - 1)


def _zero_best(pipeline: Sequence[int]) -> int:
    num_stages, count = pipeline
    return 3 * count + num_stages - 1


def _interleaved_oracle(case: Case) -> list[Values]:
    return [{"makespans": [_interleaved_best(pipeline) for pipeline in asked(case)]}]


def _zero_oracle(case: Case) -> list[Values]:
    return [{"makespans": [_zero_best(pipeline) for pipeline in asked(case)]}]


def _interleaved_problem(schedules: Sequence[Any], pipeline: Sequence[int]) -> str:
    num_stages, count, num_chunks = pipeline
    problem = _form(schedules, ("ForwardChunk", "BackwardChunk"), num_chunks, count)
    if problem:
        return problem
    for stage, order in enumerate(schedules):
        bound = min(2 * (num_stages - 1 - stage) + (num_chunks - 1) * num_stages + 1, count * num_chunks)
        held = most_held(read_records(order, stage))
        if held > bound:
            return f"Stage {stage} holds {held} pieces at once; this schedule holds at most {bound}."
    return _late(schedules, num_chunks, num_chunks, _interleaved_best(pipeline))


def _zero_problem(schedules: Sequence[Any], pipeline: Sequence[int]) -> str:
    num_stages, count = pipeline
    problem = _form(schedules, ("Forward", "BackwardInput", "BackwardWeight"), 1, count)
    if problem:
        return problem
    late = _late(schedules, 1, 2, _zero_best(pipeline))
    if late:
        return late
    for stage, order in enumerate(schedules):
        held = most_held(read_records(order, stage))
        if held > num_stages:
            return f"Stage {stage} holds {held} microbatches at once; at most {num_stages} are allowed."
    return ""


def _late(schedules: Sequence[Any], forward: int, backward: int, best: int) -> str:
    """Return what keeps the work from being done in time, each piece lasting 1, or ""."""
    orders = [read_records(schedule, stage) for stage, schedule in enumerate(schedules)]
    outcome = place("", orders, forward, backward)
    if outcome.stuck:
        return "Nobody can go on: some work stands before what it needs."
    return f"It takes {outcome.makespan:g} turns; {best} are enough." if round(outcome.makespan) > best else ""


Problem = Callable[[Sequence[Any], Sequence[int]], str]


def _judging(problem_of: Problem) -> Callable[[Case, Got, Wire], Verdict]:
    def judge(case: Case, got: Got, wire: Wire) -> Verdict:
        for pipeline, schedules in zip(asked(case), came(case, got), strict=True):
            problem = problem_of(schedules, pipeline)
            if problem:
                names = ("stages", "microbatches", "chunks")
                head = ", ".join(f"{value} {name}" for value, name in zip(pipeline, names, strict=False))
                return Verdict(False, message=f"{head}: {problem}")
        return Verdict(True)

    return judge


def _said(problem_of: Problem, words: str) -> Callable[[Case, Got, Wire], bool]:
    return lambda case, got, wire: any(
        words in problem_of(schedules, pipeline)
        for pipeline, schedules in zip(asked(case), came(case, got), strict=False)
    )


def _orders(
    test: Callable[[list[list[Mapping[str, Any]]], list[int]], bool],
) -> Callable[[Case, Got, Wire], bool]:
    def seen(case: Case, got: Got, wire: Wire) -> bool:
        return any(
            all(isinstance(order, list) and all(isinstance(each, dict) for each in order) for order in schedules)
            and test(schedules, pipeline)
            for pipeline, schedules in zip(asked(case), came(case, got), strict=False)
        )

    return seen


def _first(order: Sequence[Mapping[str, Any]], kind: str) -> int:
    places = [place for place, record in enumerate(order) if record["kind"] == kind]
    return min(places, default=len(order))


INTERLEAVED = Exercise(
    id="interleaved",
    functions=("interleaved",),
    given=("ForwardChunk", "BackwardChunk"),
    driver=write_schedules,
    oracle=_interleaved_oracle,
    judge=_judging(_interleaved_problem),
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
            _orders(
                lambda s, p: (
                    p[1] > p[0]
                    and p[2] > 1
                    and [r["chunk"] for r in s[0] if r["kind"] == "ForwardChunk"][: p[1]] == [0] * p[1]
                )
            ),
        ),
        Mistake(
            "backward with the first chunk first",
            "Backward begins with chunk 0: the last chunk's gradient is there first.",
            _orders(
                lambda s, p: (
                    p[2] > 1
                    and any(
                        r["kind"] == "BackwardChunk" and r["chunk"] == 0
                        for r in s[0][: _first(s[0], "BackwardChunk") + 1]
                    )
                )
            ),
        ),
        Mistake(
            "the warm-up of plain 1F1B",
            "The warm-up is too short for several chunks: 2 * (P - 1 - stage) + (V - 1) * P forwards.",
            _orders(lambda s, p: p[2] > 1 and p[0] > 1 and _first(s[0], "BackwardChunk") <= p[0]),
        ),
        Mistake(
            "all forwards first",
            "All forwards come before all backwards; after the warm-up they take turns.",
            _orders(lambda s, p: p[1] > 2 * p[0] - 1 and p[0] > 1 and _first(s[-1], "BackwardChunk") == p[1] * p[2]),
        ),
        Mistake(
            "work left out",
            "Some of the work is missing: every chunk meets every microbatch, forward and backward.",
            _said(_interleaved_problem, "never does"),
        ),
        Mistake(
            "deadlock",
            "Some work comes before what it needs: a chunk needs the same microbatch from the part before it.",
            _said(_interleaved_problem, "Nobody can go on"),
        ),
        Mistake(
            "holds too much",
            "The warm-up is too long, so more is held than needed: 2 * (P - 1 - stage) + (V - 1) * P forwards.",
            _said(_interleaved_problem, "pieces at once"),
        ),
        Mistake(
            "waits without need",
            "It comes to an end, later than it could: look at the warm-up, and at the order of the groups.",
            _said(_interleaved_problem, "are enough"),
        ),
    ),
)

ZERO_BUBBLE = Exercise(
    id="zero_bubble",
    functions=("zero_bubble",),
    given=("Forward", "BackwardInput", "BackwardWeight"),
    driver=write_schedules,
    oracle=_zero_oracle,
    judge=_judging(_zero_problem),
    visible=(
        order_case("3 stages, 5 microbatches", "zero_bubble", [(3, 5)]),
        order_case("2 and 4 stages, 4 and 9 microbatches", "zero_bubble", [(2, 4), (4, 9)]),
        order_case("one stage; as many microbatches as stages", "zero_bubble", [(1, 3), (5, 5)]),
    ),
    distributed=False,
    hints=(
        "Draw 1F1B for 3 stages with a backward of two boxes. Which boxes could move into the white?",
        "Go through one_f_one_b. Forward stays, Backward becomes BackwardInput, and after that of microbatch j comes "
        "BackwardWeight of j - stage, if there is one. The rest of the BackwardWeights comes at the end.",
        "for record in one_f_one_b(...): append Forward or BackwardInput; if it was a backward and record.microbatch "
        ">= stage: append BackwardWeight(record.microbatch - stage). Then BackwardWeight of the last `stage` "
        "microbatches.",
    ),
    mistakes=(
        Mistake(
            "weights right after the input",
            "Every BackwardWeight stands right after its BackwardInput: that is 1F1B again. Put it off by `stage` "
            "microbatches.",
            _orders(
                lambda s, p: (
                    p[0] > 1
                    and all(
                        order[place + 1 : place + 2] == [{"kind": "BackwardWeight", "microbatch": record["microbatch"]}]
                        for order in s
                        for place, record in enumerate(order)
                        if record["kind"] == "BackwardInput"
                    )
                )
            ),
        ),
        Mistake(
            "all weights at the end",
            "All BackwardWeights come at the end: until then every microbatch is held. Put them off by `stage` "
            "microbatches only.",
            _orders(
                lambda s, p: (
                    p[1] > p[0]
                    and all(record["kind"] == "BackwardWeight" for order in s for record in order[2 * p[1] :])
                    and any(order for order in s)
                )
            ),
        ),
        Mistake(
            "put off by the wrong number",
            "The first stage has nobody to wait for it and the last one has most time to spare at the end: put the "
            "weights off by `stage` microbatches, none on stage 0.",
            _orders(
                lambda s, p: p[0] > 1 and p[1] >= p[0] and _put_off(s[0]) > 0 and _put_off(s[0]) >= _put_off(s[-1])
            ),
        ),
        Mistake(
            "work left out",
            "Some of the work is missing: each microbatch has a Forward, a BackwardInput and a BackwardWeight.",
            _said(_zero_problem, "never does"),
        ),
        Mistake(
            "work that is not there",
            "Backward is in two parts here, BackwardInput and BackwardWeight; each microbatch is 0 to M-1.",
            _said(_zero_problem, "no such work"),
        ),
        Mistake(
            "deadlock",
            "Some work comes before what it needs: BackwardWeight after its BackwardInput, in 1F1B's order.",
            _said(_zero_problem, "Nobody can go on"),
        ),
        Mistake(
            "holds too much",
            "More microbatches are held than there are stages: do not put the weights off for longer than needed.",
            _said(_zero_problem, "are allowed"),
        ),
        Mistake(
            "waits without need",
            "It comes to an end, later than it could: what the stage before waits for goes first.",
            _said(_zero_problem, "are enough"),
        ),
    ),
)


def _put_off(order: Sequence[Mapping[str, Any]]) -> int:
    """Return how many BackwardInputs stand before the first BackwardWeight, besides its own."""
    return int(sum(record["kind"] == "BackwardInput" for record in order[: _first(order, "BackwardWeight")])) - 1
