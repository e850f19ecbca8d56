"""A design: the shortest step, with backward in two parts and two chunks on a stage, in limited memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from labkit.checks.case import Case, Values
from labkit.checks.challenge import Challenge, Pars
from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.checks.structure import NOTHING, Each, OneOf
from labkit.checks.values import integer, listed
from labkit.checks.wire import Wire
from labkit.exercises.schedules.shortest_step.driver import drive
from labkit.plans.pipeline import Schedule
from labkit.plans.pipeline_records import read_short
from labkit.plans.pipeline_timing import place
from labkit.words import plural

PLACEMENTS = ("one", "round", "v")
_WORD = re.compile(r"[FBIW](0|[1-9]\d*)(\.[01])?")
_FORM, _PLACE, _WORDS, _TWICE, _LEFT_OUT, _BOTH, _STUCK, _TOO_MUCH = (
    "no placement and orders", "no such placement", "no such work", "work twice", "work left out",
    "backward whole and in parts", "nobody can go on", "holds too much",
)  # fmt: skip
_ONE_CHUNK = "a second chunk in one"


def step_case(num_stages: int, num_microbatches: int, most_held: int) -> Case:
    """Return a case: most_held is num_stages or more, and there are at least 2P - 1 microbatches."""
    assert most_held >= num_stages and num_microbatches >= 2 * num_stages - 1, "the bound may not be reached there"
    name = f"{num_stages} stages, {num_microbatches} microbatches, memory for {most_held}"
    inputs: Values = {"num_stages": num_stages, "num_microbatches": num_microbatches, "most_held": most_held}
    return Case(name, 1, (inputs,))


def _asked(case: Case) -> tuple[int, int, int]:
    inputs = case.inputs[0]
    return integer(inputs, "num_stages"), integer(inputs, "num_microbatches"), integer(inputs, "most_held")


def structure(case: Case) -> list[Any]:
    """Return what comes: a placement and lists of words, or in words what else."""
    return [{"plan": OneOf(({"placement": str, "orders": Each(Each(str))}, str))}]


def played(plan: Any) -> Schedule:
    """Return when the work of a plan of the right form runs: F, I and W last 1 turn of a whole stage, B lasts 2."""
    stages = [read_short(" ".join(order), stage) for stage, order in enumerate(plan["orders"])]
    return place("", stages, 1, 2, v_shaped=plan["placement"] == "v")


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what makes it no plan, what never ends, and what needs more memory than there is."""
    num_stages, count, limit = _asked(case)
    plan: Any = got[0]["plan"]
    if plan is None:
        yield Finding(NOTHING, "The function returned None.")
        return
    if not isinstance(plan, dict):
        yield Finding(_FORM, f"The function returned {plan}, not a placement and a list of words for each stage.")
        return
    orders = listed(plan, "orders")
    if plan["placement"] not in PLACEMENTS:
        yield Finding(_PLACE, f"There is no placement {plan['placement']!r}.", " or ".join(PLACEMENTS))
        return
    if len(orders) != num_stages:
        yield Finding(_FORM, f"The function returned {plural(len(orders), 'list')} for {num_stages} stages.")
        return
    for stage, order in enumerate(orders):
        yield from _wrong_words(stage, order, count, 1 if plan["placement"] == "one" else 2)
    schedule = played(plan)
    if schedule.stuck:
        yield Finding(_STUCK, " ".join(schedule.faults[:3]))
    for stage in range(num_stages):
        if schedule.peak(stage) > limit + 1e-9:
            held = f"{schedule.peak(stage):g}"
            yield Finding(_TOO_MUCH, f"Stage {stage} holds {held} microbatches at once.", f"at most {limit}", held)


def _wrong_words(stage: int, order: list[str], count: int, num_chunks: int) -> Iterator[Finding]:
    seen: set[tuple[str, int, int]] = set()
    for word in order:
        match = _WORD.fullmatch(word)
        chunk, number = (int((match[2] or ".0")[1:]), int(match[1])) if match else (0, 0)
        if match is None or chunk >= num_chunks or number >= count:
            there = f"microbatches 0 to {count - 1}, chunks 0 to {num_chunks - 1}"
            name = _ONE_CHUNK if match and chunk >= num_chunks else _WORDS
            yield Finding(name, f"Stage {stage} has {word!r}; there are F, B, I and W, {there}.")
            return
        if (word[0], chunk, number) in seen:
            unnamed = num_chunks > 1 and not any(each.endswith(".1") for each in order)
            yield Finding(_WORDS if unnamed else _TWICE, f"Stage {stage} does {word} twice.")
        seen.add((word[0], chunk, number))
    for chunk in range(num_chunks):
        for number in range(count):
            done = {kind for kind in "FBIW" if (kind, chunk, number) in seen}
            where = f"microbatch {number} in chunk {chunk}" if num_chunks > 1 else f"microbatch {number}"
            if {"B", "I"} <= done or {"B", "W"} <= done:
                yield Finding(_BOTH, f"Stage {stage} does both B and {'I' if 'I' in done else 'W'} of {where}.")
            elif done not in ({"F", "B"}, {"F", "I", "W"}):
                missing = "F" if "F" not in done else "I" if "W" in done else "W" if "I" in done else "B"
                yield Finding(_LEFT_OUT, f"Stage {stage} never does {missing} of {where}.")


def turns(case: Case, got: tuple[Values, ...]) -> float:
    """Return how many turns the step takes."""
    return played(got[0]["plan"]).makespan


def pars(case: Case) -> Pars:
    """Return the turns of 1F1B, and the fewest there can be, which ZB-V reaches in these cases.

    The fewest: the stage that gets its first microbatch last waits P-1 half turns for it, and then has 3M of work.

    Source: Qi et al. 2023, "Zero bubble pipeline parallelism".
    """
    num_stages, count, _ = _asked(case)
    fewest = 3 * count + (num_stages - 1) / 2
    return Pars(3 * (count + num_stages - 1), fewest, fewest)


EXERCISE = declared(
    id="shortest_step",
    functions=("shortest_step",),
    driver=drive,
    oracle=lambda case: [],
    structure=structure,
    looks=(find,),
    visible=(step_case(4, 8, 4), step_case(4, 8, 6), step_case(3, 6, 3)),
    distributed=False,
    hints=(
        "Where are the gaps in 1F1B, and which work could fill them? Nobody waits for W.",
        'Begin with placement "one" and your 1F1B, write I and W for each B, and move W\'s into the gaps: that beats '
        "the naive answer. Then think about when the last stage gets its first microbatch, and how two chunks change "
        "that.",
        'Placement "v", and finish what has begun: play it in half turns; every stage does the first of F1, F0, I1, '
        "I0, W1, W0 that can run and fits. That reaches ZB-V in most cases. In all of them: stage s, with b = P - s, "
        "does F0 2b - 1 times, F1 F0 s times, F1 I1 W1 b times; then F0 I0 W0 F1 I1 W1 max(M - P, P - 1) times; then "
        "I0 I1 s times, I0 W0 b times, and the W1 and W0 that are left. It leaves out microbatches from M on.",
    ),
    mistakes=(
        Mistake(NOTHING, "shortest_step must return a placement and the orders."),
        Mistake(_FORM,
                'Return two things: a placement, and a list with one list of words for each stage, ("one", [["F0", '
                "...], ...])."),
        Mistake(_PLACE, 'Placements are "one" (a chunk on each stage), "round" and "v" (two chunks each).'),
        Mistake(_WORDS, 'A word is a letter and a microbatch, "F0"; for the second chunk, add ".1": "F0.1".'),
        Mistake(_ONE_CHUNK,
                'Placement "one" has one chunk on each stage, so no word ends in ".1". Two chunks are placed "round" '
                'or "v".'),
        Mistake(_TWICE, "Every piece of work is done once."),
        Mistake(_LEFT_OUT, "Each chunk meets every microbatch: F, and then B or both I and W."),
        Mistake(_BOTH, "B is I and W together: do B, or the two."),
        Mistake(_STUCK,
                "Some work comes before what it needs: F needs F of the part before, I and B need F of their own part "
                "and the I or B of the part behind, W needs its I."),
        Mistake(_TOO_MUCH,
                "A chunk is held from F until its W (or B). Before a new F, do a W; with two chunks leave room for "
                "the second one."),
    ),
    challenge=Challenge("turns", turns, pars, plan="plan", reference="ZB-V", best="lower bound"),
)  # fmt: skip
