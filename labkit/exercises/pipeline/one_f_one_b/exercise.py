"""one_f_one_b: what is asked, its cases, its mistakes and hints."""

from __future__ import annotations

from collections.abc import Callable

from labkit.checks.judged import Mistake, judged
from labkit.exercises.pipeline.one_f_one_b.driver import drive
from labkit.exercises.pipeline.timing import form
from labkit.exercises.pipeline.writing import (
    NESTED,
    PEERS,
    SHAPE,
    any_schedule,
    asked,
    came,
    judging,
    leading,
    oracle,
    placed,
    schedule_case,
    structure,
    work,
)
from labkit.exercises.pipeline.written import RECORDS


def _warmup(schedules: list[list[str]], stages: int, count: int, wrong: Callable[[int], int]) -> bool:
    leads = [leading(work(each)) for each in schedules]
    right = [min(stages - stage, count) for stage in range(stages)]
    return leads != right and leads == [min(max(wrong(stage), 0), count) for stage in range(stages)]


EXERCISE = judged(
    id="one_f_one_b",
    functions=("one_f_one_b",),
    given=RECORDS,
    driver=drive,
    oracle=oracle,
    structure=structure,
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
        SHAPE[0],
        NESTED,
        PEERS,
        *SHAPE[1:3],
        Mistake(
            "that is GPipe",
            "All forwards come before all backwards: that is GPipe, and every stage holds all microbatches. After the "
            "warm-up one backward follows each forward.",
            any_schedule(lambda s, p, m: p > 1 and m > p and all(leading(work(each)) == m for each in s)),
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
            any_schedule(lambda s, p, m: p > 1 and m > 1 and len({leading(work(each)) for each in s}) == 1),
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
                not form(schedules, count) and placed(schedules).stuck
                for (_, count), schedules in zip(asked(case), came(case, got), strict=False)
            ),
        ),
        SHAPE[3],
    ),
)
