"""zero_bubble: what is asked, its cases, its mistakes and hints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.exercises.schedules.writing import finding, late, order_case, structure
from labkit.exercises.schedules.zero_bubble.driver import drive
from labkit.exercises.stages.orders import NO_WORK, TWICE, WORK_LEFT_OUT, holds_more, played, stands_still, wrong_work

_KINDS = ("Forward", "BackwardInput", "BackwardWeight")
_AT_ONCE, _AT_THE_END, _OTHER_DELAY, _NOT_1F1B, _TOO_FAR, _TOO_SOON, _ELSEWHERE = (
    "weights right after the input", "all weights at the end", "put off by the wrong number",
    "not the order of 1F1B", "put off too far", "weights before their input", "weights behind a forward",
)  # fmt: skip


def _wrong(orders: list[Any], pipeline: Sequence[int]) -> Iterator[Finding]:
    num_stages, count = pipeline
    yield from wrong_work(orders, num_stages, count, _KINDS)
    yield from _too_soon(orders)
    schedule = played(orders)
    yield from stands_still(schedule)
    name = _of_weights(orders, num_stages, count)
    yield from late(schedule.makespan, 3 * count + num_stages - 1, name or _of_1f1b(orders, num_stages, count))
    yield from holds_more(schedule, lambda stage: num_stages, name)


def _too_soon(orders: Sequence[Sequence[Mapping[str, Any]]]) -> Iterator[Finding]:
    """Yield which stage computes the gradient of weights before that of the input."""
    for stage, order in enumerate(orders):
        at = {(record["kind"], record["microbatch"]): place for place, record in enumerate(order)}
        soon = [m for kind, m in at if kind == "BackwardWeight" and at[kind, m] < at["BackwardInput", m]]
        if soon:
            said = f"On stage {stage} BackwardWeight({soon[0]}) stands before BackwardInput({soon[0]})."
            yield Finding(_TOO_SOON, said)


def _of_weights(orders: Sequence[Sequence[Mapping[str, Any]]], num_stages: int, count: int) -> str:
    """Return which known mistake puts BackwardWeights where they stand, or ""."""
    at_once = all(
        order[at + 1 : at + 2] == [{"kind": "BackwardWeight", "microbatch": record["microbatch"]}]
        for order in orders
        for at, record in enumerate(order)
        if record["kind"] == "BackwardInput"
    )
    if at_once:
        return _AT_ONCE
    if count > num_stages and all(each["kind"] == "BackwardWeight" for order in orders for each in order[2 * count :]):
        return _AT_THE_END
    if any(_is_behind_a_forward(order) for order in orders):
        return _ELSEWHERE
    delays = [_put_off(order) for order in orders]
    if delays[0] > 0 and delays != sorted(delays, reverse=True):
        return _TOO_FAR
    return _OTHER_DELAY if delays[0] > 0 and delays[0] >= delays[-1] else ""


def _is_behind_a_forward(order: Sequence[Mapping[str, Any]]) -> bool:
    kinds = [each["kind"] for each in order]
    return any(pair == ("Forward", "BackwardWeight") for pair in pairwise(kinds))


def _of_1f1b(orders: Sequence[Sequence[Mapping[str, Any]]], num_stages: int, count: int) -> str:
    """Return that Forwards and BackwardInputs stand in another order than 1F1B's, or ""."""
    for stage, order in enumerate(orders):
        kinds = [each["kind"] for each in order if each["kind"] != "BackwardWeight"]
        if kinds.index("BackwardInput") != min(num_stages - stage, count):
            return _NOT_1F1B
    return ""


def _put_off(order: Sequence[Mapping[str, Any]]) -> int:
    """Return how many BackwardInputs stand before the first BackwardWeight, besides its own."""
    kinds = [record["kind"] for record in order]
    return kinds[: kinds.index("BackwardWeight")].count("BackwardInput") - 1


EXERCISE = declared(
    id="zero_bubble",
    functions=("zero_bubble",),
    driver=drive,
    oracle=lambda case: [],
    structure=structure,
    looks=(finding(_wrong),),
    visible=(
        order_case("3 stages, 5 microbatches", "zero_bubble", [(3, 5)]),
        order_case("2 and 4 stages, 4 and 9 microbatches", "zero_bubble", [(2, 4), (4, 9)]),
        order_case("one stage; as many microbatches as stages", "zero_bubble", [(1, 3), (5, 5)]),
    ),
    given=_KINDS,
    distributed=False,
    hints=(
        "Draw 1F1B for 3 stages with a backward of two boxes. Which boxes could move into the gaps?",
        "Stage 0 idles before its first backwards, the last stage at its end. So the later a stage, the longer it "
        "postpones weights: by as many microbatches as its number.",
        "Go through one_f_one_b. Forward stays, Backward becomes BackwardInput, and after that of microbatch j comes "
        "BackwardWeight of j - stage, if there is one. The last `stage` BackwardWeights come at the end.",
    ),
    mistakes=(
        WORK_LEFT_OUT,
        Mistake(TWICE,
                "Each BackwardWeight comes once. In the list, after the BackwardInput of microbatch m + d comes the "
                "BackwardWeight of microbatch m; the last d stand at the end."),
        Mistake(_NOT_1F1B,
                "Forward and BackwardInput do not stand in the order of 1F1B: stage s begins with P - s Forwards, or "
                "M where there are fewer, then it alternates."),
        Mistake(_TOO_FAR,
                "Stage 0 has no time to fill before its last BackwardInput, so it postpones nothing, and each stage "
                "behind it postpones by one microbatch more."),
        Mistake(_TOO_SOON,
                "A BackwardWeight comes after the BackwardInput of the same microbatch: it needs what that one "
                "computed. After BackwardInput(m + d) comes BackwardWeight(m)."),
        Mistake(_ELSEWHERE,
                "A BackwardWeight follows a Forward. It belongs right after a BackwardInput, before that Forward; "
                "where no Forward is left, it must come all the same."),
        Mistake(_AT_ONCE,
                "Every BackwardWeight comes right after its BackwardInput: that is 1F1B again. Postpone it on the "
                "later stages."),
        Mistake(_AT_THE_END,
                "All BackwardWeights come at the end: until then every microbatch is held. Postpone them only as "
                "long as it helps."),
        Mistake(_OTHER_DELAY,
                "The first stage idles before its last backward, the last stage at the end: the later a stage, the "
                "longer it postpones weights."),
        Mistake(NO_WORK, "Backward is in two parts here, BackwardInput and BackwardWeight, of microbatches 0 to M-1."),
    ),
)  # fmt: skip
