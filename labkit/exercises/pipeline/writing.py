"""Schedules as data. They are checked without a process: form, order, deadlock, memory and time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from labkit.checks.case import Case, Got, Value, Values
from labkit.checks.judged import Mistake
from labkit.checks.structure import Each, OneOf
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire
from labkit.exercises.pipeline.timing import form, said
from labkit.exercises.pipeline.written import short
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


def structure(case: Case) -> list[Any]:
    """Return what comes: for each stage of each pipeline a list of records, or in words what else."""
    number = OneOf((int, str))
    record = OneOf(({"kind": str, "microbatch": number}, str))
    return [{"schedules": [[OneOf((Each(record), str)) for _ in range(stages)] for stages, *_ in asked(case)]}]


def placed(schedules: Sequence[Any]) -> Schedule:
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
    outcome = placed(schedules)
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


def work(schedule: Sequence[str]) -> list[str]:
    """Return the forwards and backwards of a schedule."""
    return [each for each in schedule if each[0] in "FB"]


def leading(work: Sequence[str]) -> int:
    """Return how many forwards stand before the first backward."""
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


NESTED = Mistake(
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


SHAPE = (
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


PEERS = Mistake(
    "gradients go the wrong way",
    "Activations come from stage - 1 and go to stage + 1. Gradients go back: RecvGrad is from stage + 1, SendGrad to "
    "stage - 1.",
    lambda case, got, wire: any(
        isinstance(record, dict)
        and (record.get("kind"), record.get("peer")) in (("RecvGrad", stage - 1), ("SendGrad", stage + 1))
        for row in came(case, got)
        for stage, schedule in enumerate(row)
        if isinstance(schedule, list)
        for record in schedule
    ),
)
