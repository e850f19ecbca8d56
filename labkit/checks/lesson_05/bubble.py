"""How long a step takes and how much of it is waiting; expected values are counted turn by turn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

from labkit.checks.case import Case
from labkit.checks.drivers.lesson_05 import call_functions
from labkit.checks.exercise import Exercise
from labkit.checks.formulas import NOTHING, Call, Counted, as_if, calls_case, counting, judging
from labkit.checks.verdict import Mistake
from labkit.plans.pipeline_records import Op
from labkit.plans.pipeline_timing import place


@cache
def _turns(num_stages: int, num_microbatches: int) -> int:
    """Return in how many turns the last stage has run all microbatches, one a turn, played turn by turn."""
    forwards = [Op("F", number) for number in range(num_microbatches)]
    return round(place("", [forwards] * num_stages).makespan)


def _bubble(num_stages: int, num_microbatches: int) -> float:
    turns = _turns(num_stages, num_microbatches)
    return (turns - num_microbatches) / turns


def _seconds(num_stages: int, num_microbatches: int, batch_seconds: float, overhead_s: float) -> float:
    turn = batch_seconds / num_microbatches + overhead_s
    return math.fsum(turn for _ in range(_turns(num_stages, num_microbatches)))


def _best(num_stages: int, batch_seconds: float, overhead_s: float, num_samples: int) -> float:
    costs = [(_seconds(num_stages, m, batch_seconds, overhead_s), m) for m in range(1, num_samples + 1)]
    return min(costs)[1]


COUNTED: Counted = {"bubble_share": _bubble, "step_seconds": _seconds, "best_num_microbatches": _best}


def bubble_case(name: str, pipelines: Sequence[tuple[int, int]], batch_seconds: float, overhead_s: float) -> Case:
    """Return a case of bubble: (stages, microbatches) for both functions."""
    calls: list[Call] = []
    for stages, count in pipelines:
        calls += [
            ("bubble_share", (stages, count)),
            ("step_seconds", (stages, count, batch_seconds, overhead_s)),
        ]
    return calls_case(name, calls)


def best_case(name: str, pipelines: Sequence[tuple[int, float, float, int]]) -> Case:
    """Return a case of best_microbatches: (stages, batch_seconds, overhead_s, samples)."""
    return calls_case(name, [("best_num_microbatches", each) for each in pipelines])


BUBBLE = Exercise(
    id="bubble",
    functions=("bubble_share", "step_seconds"),
    driver=call_functions,
    oracle=counting(COUNTED),
    judge=judging(COUNTED),
    visible=(
        bubble_case("4 stages, 8 microbatches; 2 stages, 1", [(4, 8), (2, 1)], 0.8, 0.01),
        bubble_case("3 stages, 7 microbatches; one stage", [(3, 7), (1, 5)], 0.35, 0.002),
    ),
    distributed=False,
    hints=(
        "Draw three stages and four microbatches, one box a turn. How many columns has the picture, and how many of "
        "them are boxes in each row?",
        "M boxes in each row, and the last row begins P-1 turns later: M + P - 1 turns. A turn lasts one microbatch's "
        "share of the batch, plus its overhead.",
        "(P - 1) / (M + P - 1); and (M + P - 1) * (batch_seconds / M + overhead_s).",
    ),
    mistakes=(
        NOTHING,
        Mistake(
            "waiting over working time",
            "bubble_share divides the waiting by the working time; divide by all turns, M + P - 1.",
            as_if(COUNTED, "bubble_share", lambda p, m: (p - 1) / m),
        ),
        Mistake(
            "the last stage does not wait so long",
            "bubble_share counts P turns of waiting: the last stage begins P-1 turns after the first.",
            as_if(COUNTED, "bubble_share", lambda p, m: p / (m + p)),
        ),
        Mistake(
            "the share of work",
            "bubble_share is the share of work; the bubble is the rest, 1 minus that.",
            as_if(COUNTED, "bubble_share", lambda p, m: m / (m + p - 1)),
        ),
        Mistake(
            "bubble forgotten",
            "step_seconds counts M turns; the last stage is done after M + P - 1.",
            as_if(COUNTED, "step_seconds", lambda p, m, t, o: m * (t / m + o)),
        ),
        Mistake(
            "overhead counted once",
            "step_seconds counts the overhead once; every turn pays it.",
            as_if(COUNTED, "step_seconds", lambda p, m, t, o: (m + p - 1) * t / m + o),
        ),
        Mistake(
            "whole batch in each turn",
            "step_seconds lets each turn last a whole batch; a microbatch is 1/M of it.",
            as_if(COUNTED, "step_seconds", lambda p, m, t, o: (m + p - 1) * (t + o)),
        ),
        Mistake(
            "P turns of waiting",
            "step_seconds counts M + P turns: when the last stage begins, P-1 have passed.",
            as_if(COUNTED, "step_seconds", lambda p, m, t, o: (m + p) * (t / m + o)),
        ),
    ),
)

BEST = Exercise(
    id="best_microbatches",
    functions=("best_num_microbatches",),
    driver=call_functions,
    oracle=counting(COUNTED),
    judge=judging(COUNTED),
    visible=(
        best_case("4 stages, 48 ms, 1 ms overhead", [(4, 0.048, 0.001, 64), (4, 0.048, 0.001, 7)]),
        best_case("without overhead; one stage", [(8, 0.1, 0.0, 12), (1, 0.1, 0.01, 12)]),
    ),
    distributed=False,
    hints=(
        "You have a function that says how long a step takes. What is the simplest way to find its least value?",
        "Call step_seconds for every number of microbatches from 1 to num_samples, and take the one with the least.",
        "min(range(1, num_samples + 1), key=lambda count: step_seconds(num_stages, count, batch_seconds, overhead_s))",
    ),
    mistakes=(
        NOTHING,
        Mistake(
            "as many as there are samples",
            "As many microbatches as samples: right only without overhead.",
            as_if(COUNTED, "best_num_microbatches", lambda p, t, o, n: n),
        ),
        Mistake(
            "the rule of thumb",
            "Four times the number of stages is a rule of thumb; ask step_seconds.",
            as_if(COUNTED, "best_num_microbatches", lambda p, t, o, n: min(4 * p, n)),
        ),
        Mistake(
            "the last number left out",
            "range(1, num_samples) ends before num_samples: num_samples microbatches are allowed too.",
            as_if(
                COUNTED,
                "best_num_microbatches",
                lambda p, t, o, n: _best(p, t, o, max(n - 1, 1)),
            ),
        ),
        Mistake(
            "the time instead of the number",
            "The least time came back; asked for is the number of microbatches that has it: min(..., key=...).",
            as_if(COUNTED, "best_num_microbatches", lambda p, t, o, n: _seconds(p, int(_best(p, t, o, n)), t, o)),
        ),
        Mistake(
            "the square root alone",
            "The square root is where the curve's derivative is zero: round it the right way, at least 1 and at most "
            "num_samples, or try all numbers.",
            as_if(
                COUNTED,
                "best_num_microbatches",
                lambda p, t, o, n: float("inf") if not o else round(math.sqrt((p - 1) * t / o)),
            ),
            general=True,
        ),
    ),
)
