"""Schedules as data. They are checked without a process: form, order, deadlock, memory and time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from labkit.checks.case import Case, Got, Value, Values
from labkit.checks.drivers.lesson_05 import write_schedules
from labkit.checks.exercise import Exercise
from labkit.checks.lesson_05.timing import form, said
from labkit.checks.lesson_05.written import RECORDS, short
from labkit.checks.verdict import Mistake, Verdict
from labkit.checks.wire import Wire
from labkit.plans.pipeline import Schedule, most_held
from labkit.plans.pipeline_records import as_data, read_records
from labkit.plans.pipeline_timing import place


def schedule_case(name: str, function: str, pipelines: Sequence[tuple[int, ...]]) -> Case:
    """Return a case of one rank that asks for the schedules of all stages of each pipeline (stages, microbatches)."""
    asked: list[Value] = [list(each) for each in pipelines]
    return Case(name, 1, ({"function": function, "pipelines": asked},))


def asked(case: Case) -> list[list[int]]:
    """Return the pipelines of a case."""
    return cast(list[list[int]], case.inputs[0]["pipelines"])


def came(case: Case, got: Got) -> list[list[Any]]:
    """Return for each pipeline what each stage returned; empty if nothing came."""
    if not isinstance(got, tuple) or not isinstance(got[0].get("schedules"), list):
        return []
    return cast(list[list[Any]], got[0]["schedules"])


def oracle(case: Case) -> list[Values]:
    """Return how long each pipeline's schedules may take, forwards and backwards lasting 1: 2(M + P - 1)."""
    return [{"makespans": [2 * (count + stages - 1) for stages, count in asked(case)]}]


def _placed(schedules: Sequence[Any]) -> Schedule:
    """Return when the work of schedules of the right form is done, a Forward and a Backward lasting 1 each."""
    return place("", [read_records(schedule, stage) for stage, schedule in enumerate(schedules)], 1, 1)


def _problem(schedules: list[Any], count: int, held: Callable[[int, int, int], int]) -> str:
    problem = form(schedules, count)
    if problem:
        return problem
    num_stages = len(schedules)
    for kind in ("Forward", "Backward"):
        for stage, schedule in enumerate(schedules):
            order = [record["microbatch"] for record in schedule if record["kind"] == kind]
            if order != sorted(order):
                return f"Stage {stage} runs {kind} in the order {order}; asked for is 0 to {count - 1}."
    outcome = _placed(schedules)
    for stage, record, *_ in outcome.blocked:
        return f"Deadlock: stage {stage} waits for ever at {said(as_data(record))}."
    for stage, schedule in enumerate(schedules):
        most, bound = most_held(read_records(schedule, stage)), held(stage, num_stages, count)
        if most != bound:
            return (
                f"Stage {stage} of {num_stages} holds {most} of {count} microbatches at once (gone forward and not yet "
                f"backward); in this schedule it is {bound}."
            )
    best = 2 * (count + num_stages - 1)
    if outcome.makespan != best:
        return (
            f"With {num_stages} stages and {count} microbatches it takes {outcome.makespan:g} turns; {best} are enough "
            "if nobody waits without need."
        )
    return ""


def _in_short(schedules: Sequence[Any]) -> str:
    lines = []
    for stage, schedule in enumerate(schedules):
        records = [short(record) for record in schedule] if isinstance(schedule, list) else [str(schedule)]
        lines.append(f"stage {stage}: {' '.join(records[:40])}{' ...' if len(records) > 40 else ''}")
    return "\n".join(lines[:4])


def judging(held: Callable[[int, int, int], int]) -> Callable[[Case, Got, Wire], Verdict]:
    """Return the judge of schedules of which a stage must hold that many: held(stage, num_stages, num_microbatches)."""

    def judge(case: Case, got: Got, wire: Wire) -> Verdict:
        pipelines = came(case, got)
        for (num_stages, count), schedules in zip(asked(case), pipelines, strict=True):
            problem = _problem(schedules, count, held)
            if problem:
                head = f"{num_stages} stages, {count} microbatches: "
                records = [record for each in schedules if isinstance(each, list) for record in each]
                shown = (
                    f"\nYours, in short:\n{_in_short(schedules)}" if all(isinstance(r, dict) for r in records) else ""
                )
                return Verdict(False, message=f"{head}{problem}{shown}")
        return Verdict(True)

    return judge


def _texts(schedules: Sequence[Any]) -> list[list[str]]:
    return [[short(record) for record in schedule] if isinstance(schedule, list) else [] for schedule in schedules]


def any_schedule(test: Callable[[list[list[str]], int, int], bool]) -> Callable[[Case, Got, Wire], bool]:
    """Return whether a pipeline's schedules, in short, pass the test (schedules, num_stages, num_microbatches)."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        return any(
            test(_texts(schedules), stages, count)
            for (stages, count), schedules in zip(asked(case), came(case, got), strict=False)
        )

    return seen


def _work(schedule: Sequence[str]) -> list[str]:
    return [each for each in schedule if each[0] in "FB"]


def _leading(work: Sequence[str]) -> int:
    return next((place for place, each in enumerate(work) if each[0] == "B"), len(work))


def _no(kind: str, first: bool = False, last: bool = False) -> Callable[[list[list[str]], int, int], bool]:
    def test(schedules: list[list[str]], stages: int, count: int) -> bool:
        middle = schedules[1 if first else 0 : stages - 1 if last else stages]
        return any(
            not any(each == f"{kind}{microbatch}" for each in schedule)
            for schedule in middle
            for microbatch in range(count)
        )

    return test


_NESTED = Mistake(
    "lists in the list",
    "A whole list stands where a record belongs: a schedule is one flat list. Join lists with += or extend; append "
    "puts the list itself inside.",
    lambda case, got, wire: any(
        isinstance(record, str) and record.startswith("[")
        for row in came(case, got)
        for schedule in row
        if isinstance(schedule, list)
        for record in schedule
    ),
)
_SHAPE = (
    Mistake(
        "returns nothing",
        "The function returned None: return the list.",
        lambda case, got, wire: any(
            "None" in str(each) for row in came(case, got) for each in row if isinstance(each, str)
        ),
    ),
    Mistake(
        "the first stage has nobody before it",
        "Stage 0 has its inputs and sends no gradient on: it has neither Recv nor SendGrad.",
        any_schedule(lambda s, p, m: any(each.startswith(("r", "sg")) and each[:2] != "rg" for each in s[0])),
    ),
    Mistake(
        "the last stage has nobody behind it",
        "The last stage begins backward from its own loss: it has neither Send nor RecvGrad.",
        any_schedule(
            lambda s, p, m: any(each.startswith("rg") or (each[0] == "s" and each[:2] != "sg") for each in s[-1])
        ),
    ),
    Mistake(
        "no messages",
        "Some messages are missing: before each Forward its Recv and after it its Send, before each Backward its "
        "RecvGrad and after it its SendGrad (but not beyond the first and the last stage).",
        any_schedule(
            lambda s, p, m: (
                p > 1
                and (
                    _no("r", first=True)(s, p, m)
                    or _no("s", last=True)(s, p, m)
                    or _no("rg", last=True)(s, p, m)
                    or _no("sg", first=True)(s, p, m)
                )
                and not (_no("F")(s, p, m) or _no("B")(s, p, m))
            )
        ),
    ),
)
_PEERS = Mistake(
    "gradients go the wrong way",
    "Activations come from stage - 1 and go to stage + 1. Gradients go back: RecvGrad is from stage + 1, SendGrad to "
    "stage - 1.",
    lambda case, got, wire: any(
        isinstance(record, dict)
        and (record.get("kind"), cast(int, record.get("peer", stage)) - stage) in (("RecvGrad", -1), ("SendGrad", 1))
        for row in came(case, got)
        for stage, schedule in enumerate(row)
        if isinstance(schedule, list)
        for record in schedule
    ),
)

GPIPE = Exercise(
    id="gpipe",
    functions=("gpipe",),
    given=RECORDS,
    driver=write_schedules,
    oracle=oracle,
    judge=judging(lambda stage, num_stages, count: count),
    visible=(
        schedule_case("3 stages, 4 microbatches", "gpipe", [(3, 4)]),
        schedule_case("2 stages, 1 and 5 microbatches", "gpipe", [(2, 1), (2, 5)]),
        schedule_case("one stage; more stages than microbatches", "gpipe", [(1, 3), (5, 2)]),
    ),
    distributed=False,
    hints=(
        "Write down on paper what stage 1 of 3 does with two microbatches. Which of it does stage 0 not do, and which "
        "the last?",
        "Two loops over the microbatches. In the first each gives Recv, Forward, Send; in the second RecvGrad, "
        "Backward, SendGrad. Leave out what would have a peer of -1 or of num_stages.",
        "if stage > 0: Recv(stage - 1, m); Forward(m); if stage < num_stages - 1: Send(stage + 1, m); and then in a "
        "second loop: if stage < num_stages - 1: RecvGrad(stage + 1, m); Backward(m); if stage > 0: SendGrad(stage - "
        "1, m).",
    ),
    mistakes=(
        _SHAPE[0],
        _NESTED,
        _PEERS,
        *_SHAPE[1:3],
        Mistake(
            "one forward, one backward",
            "Here backward begins before all forwards are done; in GPipe all forwards come first.",
            any_schedule(lambda s, p, m: any(_leading(_work(each)) < m and len(_work(each)) == 2 * m for each in s)),
        ),
        Mistake(
            "backward from the last to the first",
            "Backward goes through the microbatches from the last to the first; asked for is 0 to M-1 in both loops.",
            any_schedule(
                lambda s, p, m: (
                    m > 1
                    and any([e for e in each if e[0] == "B"] == [f"B{k}" for k in reversed(range(m))] for each in s)
                )
            ),
        ),
        Mistake(
            "microbatches counted from 1",
            "The microbatches are 0 to M-1.",
            any_schedule(lambda s, p, m: any(f"F{m}" in each and "F0" not in each for each in s)),
        ),
        Mistake(
            "only forward",
            "There is no Backward: after all forwards come all backwards.",
            any_schedule(lambda s, p, m: any(each and not any(e[0] == "B" for e in each) for each in s)),
        ),
        _SHAPE[3],
    ),
)


def _warmup(schedules: list[list[str]], stages: int, count: int, wrong: Callable[[int], int]) -> bool:
    leads = [_leading(_work(each)) for each in schedules]
    right = [min(stages - stage, count) for stage in range(stages)]
    return leads != right and leads == [min(max(wrong(stage), 0), count) for stage in range(stages)]


ONE_F_ONE_B = Exercise(
    id="one_f_one_b",
    functions=("one_f_one_b",),
    given=RECORDS,
    driver=write_schedules,
    oracle=oracle,
    judge=judging(lambda stage, num_stages, count: min(num_stages - stage, count)),
    visible=(
        schedule_case("3 stages, 5 microbatches", "one_f_one_b", [(3, 5)]),
        schedule_case("2 and 4 stages, 4 microbatches", "one_f_one_b", [(2, 4), (4, 4)]),
        schedule_case("one stage; more stages than microbatches", "one_f_one_b", [(1, 3), (5, 2)]),
    ),
    distributed=False,
    hints=(
        "Three parts: warm-up, pairs, cool-down. How many records of each kind has each part, on stage 1 of 4 with 6 "
        "microbatches?",
        "warmup = min(num_stages - 1 - stage, num_microbatches). Forwards 0 to warmup-1; then for every forward that "
        "is left, that forward and the next backward, which is `warmup` microbatches behind; then the last `warmup` "
        "backwards.",
        "for m in range(warmup): forward_of(m); for m in range(warmup, M): forward_of(m), then backward_of(m - "
        "warmup); for m in range(M - warmup, M): backward_of(m). forward_of and backward_of are the records around a "
        "Forward and a Backward, as in gpipe.",
    ),
    mistakes=(
        _SHAPE[0],
        _NESTED,
        _PEERS,
        *_SHAPE[1:3],
        Mistake(
            "that is GPipe",
            "All forwards come before all backwards: that is GPipe, and every stage holds all microbatches. After the "
            "warm-up one backward follows each forward.",
            any_schedule(lambda s, p, m: p > 1 and m > p and all(_leading(_work(each)) == m for each in s)),
        ),
        Mistake(
            "warm-up not limited",
            "With fewer microbatches than stages the warm-up is at most M forwards: min(num_stages - 1 - stage, "
            "num_microbatches).",
            any_schedule(lambda s, p, m: any(f"F{m}" in each for each in s)),
        ),
        Mistake(
            "warm-up one too long",
            "The warm-up is one too long: stage s goes forward once for each stage behind it, P-1-s times, before the "
            "first pair.",
            any_schedule(lambda s, p, m: p > 1 and m > p and _warmup(s, p, m, lambda stage: p - stage + 1)),
        ),
        Mistake(
            "warm-up one too short",
            "The warm-up is one too short: the first backward of stage s comes after P-s forwards.",
            any_schedule(lambda s, p, m: p > 1 and _warmup(s, p, m, lambda stage: max(p - stage - 1, 1))),
        ),
        Mistake(
            "the same warm-up everywhere",
            "All stages warm up alike; the later a stage, the fewer forwards before its first backward: P-1-s.",
            any_schedule(lambda s, p, m: p > 1 and m > 1 and len({_leading(_work(each)) for each in s}) == 1),
        ),
        Mistake(
            "the warm-up of the other end",
            "The warm-up grows with the stage's number: it must shrink; the last stage has none.",
            any_schedule(lambda s, p, m: p > 1 and m > 1 and _warmup(s, p, m, lambda stage: stage + 1)),
        ),
        Mistake(
            "cool-down forgotten",
            "The backwards of the last microbatches are missing: as many as there were forwards in the warm-up come at "
            "the end.",
            any_schedule(lambda s, p, m: any(f"B{m - 1}" not in each and f"F{m - 1}" in each for each in s)),
        ),
        Mistake(
            "backward before forward",
            "In a pair the forward comes first: B before F leaves the stages behind without work.",
            any_schedule(lambda s, p, m: p > 1 and m > p and _warmup(s, p, m, lambda stage: p - stage - 1)),
        ),
        Mistake(
            "the messages of a pair stand apart",
            "Nobody can go on: a Send and the RecvGrad after it must stand next to each other, so that they are one "
            "batch; so must SendGrad and the next Recv.",
            lambda case, got, wire: any(
                not form(schedules, count) and _placed(schedules).stuck
                for (_, count), schedules in zip(asked(case), came(case, got), strict=False)
            ),
        ),
        _SHAPE[3],
    ),
)
