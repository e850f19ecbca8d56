"""gpipe: what is asked, its cases, its mistakes and hints."""

from __future__ import annotations

from labkit.checks.judged import Mistake, judged
from labkit.exercises.pipeline.gpipe.driver import drive
from labkit.exercises.pipeline.writing import (
    NESTED,
    PEERS,
    SHAPE,
    any_schedule,
    judging,
    leading,
    oracle,
    schedule_case,
    structure,
    work,
)
from labkit.exercises.pipeline.written import RECORDS

EXERCISE = judged(
    id="gpipe",
    functions=("gpipe",),
    given=RECORDS,
    driver=drive,
    oracle=oracle,
    structure=structure,
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
        SHAPE[0],
        NESTED,
        PEERS,
        *SHAPE[1:3],
        Mistake(
            "one forward, one backward",
            "Here backward begins before all forwards are done; in GPipe all forwards come first.",
            any_schedule(lambda s, p, m: any(leading(work(each)) < m and len(work(each)) == 2 * m for each in s)),
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
        SHAPE[3],
    ),
)
