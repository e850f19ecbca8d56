"""zero_bubble: what is asked, its cases, its mistakes and hints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from labkit.exercises.pipeline.writing import asked, structure
from labkit.exercises.pipeline.zero_bubble.driver import drive
from labkit.plans.pipeline import most_held
from labkit.plans.pipeline_records import read_records


def _zero_best(pipeline: Sequence[int]) -> int:
    num_stages, count = pipeline
    return 3 * count + num_stages - 1


def _zero_oracle(case: Case) -> list[Values]:
    return [{"makespans": [_zero_best(pipeline) for pipeline in asked(case)]}]


def _zero_problem(schedules: Sequence[Any], pipeline: Sequence[int]) -> str:
    num_stages, count = pipeline
    problem = form(schedules, ("Forward", "BackwardInput", "BackwardWeight"), 1, count)
    if problem:
        return problem
    late = late_work(schedules, 1, 2, _zero_best(pipeline))
    if late:
        return late
    for stage, order in enumerate(schedules):
        held = most_held(read_records(order, stage))
        if held > num_stages:
            return f"Stage {stage} holds {held} microbatches at once; at most {num_stages} are allowed."
    return ""


EXERCISE = judged(
    id="zero_bubble",
    functions=("zero_bubble",),
    given=("Forward", "BackwardInput", "BackwardWeight"),
    driver=drive,
    oracle=_zero_oracle,
    structure=structure,
    judge=judging(_zero_problem),
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
            orders(
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
            orders(
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
            orders(lambda s, p: p[0] > 1 and p[1] >= p[0] and _put_off(s[0]) > 0 and _put_off(s[0]) >= _put_off(s[-1])),
        ),
        Mistake(
            "work left out",
            "Some of the work is missing: each microbatch has a Forward, a BackwardInput and a BackwardWeight.",
            said_of(_zero_problem, "never does"),
        ),
        Mistake(
            "work that is not there",
            "Backward is in two parts here, BackwardInput and BackwardWeight; each microbatch is 0 to M-1.",
            said_of(_zero_problem, "no such work"),
        ),
        Mistake(
            "deadlock",
            "Some work comes before what it needs: BackwardWeight after its BackwardInput, in 1F1B's order.",
            said_of(_zero_problem, "Nobody can go on"),
        ),
        Mistake(
            "holds too much",
            "More microbatches are held than there are stages: do not put the weights off for longer than needed.",
            said_of(_zero_problem, "are allowed"),
        ),
        Mistake(
            "waits without need",
            "It comes to an end, later than it could: what the stage before waits for goes first.",
            said_of(_zero_problem, "are enough"),
        ),
    ),
)


def _put_off(order: Sequence[Mapping[str, Any]]) -> int:
    """Return how many BackwardInputs stand before the first BackwardWeight, besides its own."""
    return int(sum(record["kind"] == "BackwardInput" for record in order[: first(order, "BackwardWeight")])) - 1
