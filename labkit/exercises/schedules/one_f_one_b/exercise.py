"""one_f_one_b: a schedule that is recognised from its picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.exercises.schedules.one_f_one_b.driver import drive
from labkit.exercises.schedules.writing import NOTHING, finding, late, order_case, structure
from labkit.exercises.stages.orders import (
    LEFT_OUT,
    NO_ORDERS,
    NO_SUCH_WORK,
    NO_WORK,
    NOT_A_LIST,
    WORK_LEFT_OUT,
    WORK_TWICE,
    holds_more,
    leading,
    played,
    stands_still,
    wrong_work,
)
from labkit.words import plural

_MIXED, _GPIPE, _UNLIMITED, _LONG, _SHORT, _SAME, _OTHER_END, _DRAIN = (
    "microbatches out of order", "that is GPipe", "warm-up not limited", "warm-up one too long",
    "warm-up one too short", "the same warm-up everywhere", "the warm-up of the other end", "cool-down forgotten",
)  # fmt: skip
_ANOTHER = "a warm-up of another length"
_BEYOND = "a forward with every backward"
_FROM_ONE = "microbatches numbered from 1"
_BELOW = "a warm-up below 0"
_EVERY_STAGE = "the lists of all stages"


def _wrong(orders: list[Any], pipeline: Sequence[int]) -> Iterator[Finding]:
    num_stages, count = pipeline
    for each in wrong_work(orders, num_stages, count):
        yield Finding(_of_form(each, orders, count), each.message, each.expected, each.got)
    for stage, order in enumerate(orders):
        for kind in ("Forward", "Backward"):
            numbers = [record["microbatch"] for record in order if record["kind"] == kind]
            if numbers != sorted(numbers):
                yield Finding(_MIXED, f"Stage {stage} runs {kind} in the order {numbers}.")
    schedule = played(orders)
    leads = [leading(order) for order in orders]
    name = _of_warm_up(leads, num_stages, count)
    begins = _first_other(leads, num_stages, count) if name == _ANOTHER else ""
    for each in stands_still(schedule):
        yield Finding(name or each.mistake, each.message + begins)
    for each in holds_more(schedule, lambda stage: min(num_stages - stage, count), name):
        yield replace(each, message=each.message + begins)
    for each in late(schedule.makespan, 3 * (count + num_stages - 1), name):
        yield replace(each, message=each.message + begins)


def _of_form(found: Finding, orders: list[Any], count: int) -> str:
    inner = [each for order in orders if isinstance(order, list) for each in order]
    if found.mistake == NO_ORDERS and inner and all(isinstance(each, str) and each[0] == "[" for each in inner):
        return _EVERY_STAGE if len(inner) == len(orders) ** 2 else NO_ORDERS
    every = [record for order in orders if isinstance(order, list) for record in order if isinstance(record, dict)]
    firsts = [order[0] for order in orders if isinstance(order, list) and order]
    if found.mistake == NO_WORK and all(record == {"kind": "Forward", "microbatch": 1} for record in firsts):
        return _FROM_ONE
    below = any(type(record["microbatch"]) is int and record["microbatch"] < 0 for record in every)
    if found.mistake == NO_WORK and below and any(record["kind"] == "Backward" for record in firsts):
        return _BELOW
    if found.mistake == NO_WORK and any(record == {"kind": "Forward", "microbatch": count} for record in every):
        if any({"kind": "Forward", "microbatch": count} in order[:1] for order in orders if isinstance(order, list)):
            return found.mistake
        return _UNLIMITED if len(orders) > count else _BEYOND
    some = any(record.get("kind") == "Backward" for record in every)
    return _DRAIN if found.mistake == LEFT_OUT and "Backward" in found.message and some else found.mistake


def _of_warm_up(leads: list[int], num_stages: int, count: int) -> str:
    """Return which known mistake leads to so many forwards before each stage's first backward, or ""."""

    def would_be(ahead: list[int]) -> list[int]:
        return [min(max(each, 1), count) for each in ahead]

    stages = range(num_stages)
    right = would_be([num_stages - stage for stage in stages])
    ways = {
        _GPIPE: [count] * num_stages,
        _LONG: [num_stages - stage + 1 for stage in stages],
        _SHORT: [num_stages - stage - 1 for stage in stages],
        _OTHER_END: [stage + 1 for stage in stages],
    }
    if leads == right:
        return ""
    for name, ahead in ways.items():
        if leads == would_be(ahead):
            return name
    return _SAME if num_stages > 1 and len(set(leads)) == 1 else _ANOTHER


def _first_other(leads: list[int], num_stages: int, count: int) -> str:
    """Return which stage is the first with another warm-up than 1F1B's, as a sentence that begins with a space."""
    right = [min(num_stages - stage, count) for stage in range(num_stages)]
    stage = next(stage for stage, (came, wanted) in enumerate(zip(leads, right, strict=True)) if came != wanted)
    ahead = plural(leads[stage], "forward")
    return f" Stage {stage} runs {ahead} before its first backward; in 1F1B it is {right[stage]}."


EXERCISE = declared(
    id="one_f_one_b",
    functions=("one_f_one_b",),
    driver=drive,
    oracle=lambda case: [],
    structure=structure,
    looks=(finding(_wrong),),
    visible=(
        order_case("3 stages, 5 microbatches", "one_f_one_b", [(3, 5)]),
        order_case("2 and 4 stages, 4 microbatches", "one_f_one_b", [(2, 4), (4, 4)]),
        order_case("one stage; more stages than microbatches", "one_f_one_b", [(1, 3), (5, 2)]),
    ),
    given=("Forward", "Backward"),
    distributed=False,
    hints=(
        "Read one row of the figure aloud. How many forwards come before the first backward on the last stage, and "
        "how many on the one before it?",
        "Three parts: some forwards, then pairs of one backward and one forward, then the backwards that are left. "
        "Stage s begins with P - s forwards, or all M where there are fewer.",
        "ahead = min(num_stages - stage, num_microbatches); Forward(0) to Forward(ahead - 1); then for each m: "
        "Backward(m), and Forward(m + ahead) if there is such a microbatch.",
    ),
    mistakes=(
        Mistake(NOTHING, "The function must return the list."),
        NOT_A_LIST,
        Mistake(_EVERY_STAGE, "The function is asked about one stage: return this stage's own list of records, not a "
                "list with the lists of all stages."),
        NO_SUCH_WORK,
        WORK_TWICE,
        WORK_LEFT_OUT,
        Mistake(_MIXED, "Microbatches go in the order of their numbers, forward and backward."),
        Mistake(_GPIPE,
                "All forwards come before all backwards: that is GPipe, and every stage holds all microbatches. A "
                "microbatch that has reached the last stage turns round at once."),
        Mistake(_BEYOND,
                "After the last forward only backwards are left: in the steady phase a forward follows a backward only "
                "while there is one more microbatch."),
        Mistake(_FROM_ONE, "Microbatches are numbered from 0 to M-1, and so are stages: every stage begins with "
                "Forward(0)."),
        Mistake(_BELOW,
                "Where stages are more than microbatches, a late stage begins with Backward and comes to a microbatch "
                "below 0: its number of first forwards is not positive. Limit P - s itself, min(P - s, M); "
                "min(P, M) - s is too few, and 0 or less on late stages."),
        Mistake(_UNLIMITED, "With fewer microbatches than stages there are only M forwards to begin with."),
        Mistake(_LONG,
                "Each stage runs one more forward than it needs before its first backward, and holds it: P - s are "
                "enough on stage s."),
        Mistake(_SHORT,
                "Each stage begins backward one forward too early and then waits for a gradient: stage s can run P - "
                "s forwards before the first one comes back."),
        Mistake(_SAME,
                "All stages begin with the same number of forwards. The later a stage, the sooner its first gradient "
                "arrives."),
        Mistake(_OTHER_END,
                "The number of first forwards grows with the stage's number: it must shrink; the last stage has one."),
        Mistake(_ANOTHER, "Stage s begins with P - s forwards, or with all M where there are fewer."),
        Mistake(_DRAIN,
                "The backwards of the last microbatches are missing: as many as are still held come at the end."),
    ),
)  # fmt: skip
