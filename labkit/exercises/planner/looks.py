"""How numbers for several plans are held against the right ones, and how a wrong one is said and named."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from labkit.checks.as_if import as_if
from labkit.checks.case import Case, Values
from labkit.checks.declared import Mistake
from labkit.checks.finding import Find, Finding
from labkit.checks.wire import Wire
from labkit.exercises.planner.as_data import is_number
from labkit.plans.planned_step import Plan
from labkit.words import join

Numbers = Sequence[Any]
"""A number for each plan, or a list of numbers."""
NO_NUMBER = Mistake("no number", "Return what the docstring says: a number of seconds, or as many as it names.")


def same_numbers(came: Any, wanted: Any) -> bool:
    """Return whether numbers are the same up to rounding, however they are nested."""
    if isinstance(wanted, Sequence):
        return (
            isinstance(came, Sequence)
            and not isinstance(came, str)
            and len(came) == len(wanted)
            and all(map(same_numbers, came, wanted))
        )
    return is_number(came) and math.isclose(came, wanted, rel_tol=1e-6, abs_tol=1e-12)


def numbers_look(
    key: str,
    function: str,
    right: Callable[[Case], Numbers],
    named: Callable[[Case, int], str],
    mistakes: Sequence[Mistake],
    *,
    good: Callable[[Any, Any], bool] = same_numbers,
    furthest: bool = False,
    unit: float = 1e3,
    sign: str = "ms",
    plans: Callable[[Case], Sequence[Plan]] = lambda case: (),
    more: Callable[[Case, Numbers], str] = lambda case, came: "",
    made: Callable[[Case, int], str] = lambda case, place: "",
) -> Find:
    """Return the find that yields a number that is wrong; a mistake is named that gives all of a case's.

    Args:
        key: Of the driver's result.
        function: Of the learner.
        right: The numbers that should have come.
        named: The call, in words, by its place.
        mistakes: Each gives, under the key, what is there where it was made.
        good: Whether a number is right.
        furthest: Whether the one that is furthest off is told, as a share, and not the first.
        unit: What numbers are multiplied by to be shown.
        sign: Its name.
        plans: The plan of each number, where there is one: what the wrong ones have in common is said.
        more: What else is said of numbers that no mistake gives, as a sentence that begins with a space; (case, came).
        made: What a right number is made of, by its place; a sentence like it.
    """

    def shown(value: Any) -> str:
        if isinstance(value, Sequence) and not isinstance(value, str):
            return "(" + ", ".join(map(shown, value)) + ")"
        return f"{value * unit:.4g} {sign}" if is_number(value) else f"{value!r:.60}"

    def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
        came, wanted = got[0].get(key), right(case)
        if not isinstance(came, list) or len(came) != len(wanted):
            yield Finding(NO_NUMBER.name, f"{function} returned {came!r:.60}.")
            return
        wrong = [place for place, both in enumerate(zip(came, wanted, strict=True)) if not good(*both)]
        if not wrong:
            return
        of_all = furthest and len(wrong) > 1 and all(_alike(came[place], wanted[place]) for place in wrong)
        place = max(wrong, key=lambda each: abs(came[each] / wanted[each] - 1)) if of_all else wrong[0]
        mine, theirs = came[place], wanted[place]
        ways = [(each.name, _of(way, case)) for each in mistakes for way in each.given(key)]
        name = as_if(came, ways, same_numbers) or ("" if _alike(mine, theirs) else NO_NUMBER.name)
        text = f"{function}, {named(case, place)}: {shown(mine)}, expected {shown(theirs)}."
        text += f" It is the furthest off of {len(wrong)} wrong ones, of {len(came)}." if of_all else ""
        if not name:
            text += more(case, came) or f"{in_common(came, wanted, wrong, plans(case), shown)}{made(case, place)}"
        yield Finding(name, text, shown(theirs), shown(mine))

    return find


_FEATURES: Mapping[str, Callable[[Plan], bool]] = {
    "recompute": lambda plan: plan.recompute,
    "tensor > 1": lambda plan: plan.tensor > 1,
    "pipeline > 1": lambda plan: plan.pipeline > 1,
    "data > 1": lambda plan: plan.data > 1,
    "microbatch > 1": lambda plan: plan.microbatch > 1,
}


def in_common(
    came: Numbers, wanted: Numbers, wrong: Sequence[int], plans: Sequence[Plan], shown: Callable[[Any], str] = str
) -> str:
    """Return what the wrong numbers have in common, as sentences that begin with a space, or ""."""
    said = []
    with_it = {
        name: [place for place, plan in enumerate(plans) if has(plan)] for name, has in _FEATURES.items()
    }  # fmt: skip
    if len(wrong) < len(plans):
        just = next((name for name, places in with_it.items() if places == list(wrong)), "")
        rest = [place for place in range(len(plans)) if place not in wrong]
        without = next((name for name, places in with_it.items() if places == rest), "")
        if just or without:
            said.append(f"Wrong are just the plans {'with' if just else 'without'} {just or without}.")
    pairs = [pair for place in wrong for pair in _flat_pairs(came[place], wanted[place])]
    off = [(one, other) for one, other in pairs if not same_numbers(one, other)]
    if not off or not all(is_number(one) and other for one, other in off):
        return "".join(f" {each}" for each in said)
    factors = [one / other for one, other in off]
    if all(one == 0 for one, _ in off):
        said.append("Every wrong number is 0.")
    elif len(off) > 1 and all(math.isclose(each, factors[0], rel_tol=1e-6) for each in factors):
        said.append(f"Each wrong number is {factors[0]:.4g} times what it should be.")
    elif by := _by_as_much([one - other for one, other in off]):
        said.append(f"Each wrong number is {shown(abs(by))} too {'large' if by > 0 else 'small'}.")
    elif len(off) > 1 and (max(factors) < 1 or min(factors) > 1):
        said.append(f"Every wrong number is too {'small' if max(factors) < 1 else 'large'}.")
    stages = {place for at in wrong for place, (one, other) in enumerate(_flat_pairs(came[at], wanted[at]))
              if isinstance(wanted[at], list) and len(wanted[at]) > 1 and not same_numbers(one, other)}  # fmt: skip
    if stages == {0}:
        said.append("Only the first entry is wrong.")
    elif stages and all(len(wanted[at]) - 1 in stages for at in wrong) and len(stages) == 1:
        said.append("Only the last entry is wrong.")
    elif len(stages) > 1:
        said += _apart(came[wrong[0]], wanted[wrong[0]])
    return "".join(f" {each}" for each in said)


def _by_as_much(apart: Sequence[float]) -> float:
    """Return by how much all numbers are off, 0 where they differ in it; a single one tells only where it is 1."""
    first = apart[0]
    alike = all(math.isclose(each, first, rel_tol=1e-6) for each in apart)
    return first if alike and (len(apart) > 1 or math.isclose(abs(first), 1, rel_tol=1e-6)) else 0.0


def _apart(came: Sequence[float], wanted: Sequence[float]) -> list[str]:
    """Return by how much the entries of a list are off, in a sentence, where those that are off are so by as much."""
    apart = [one - other for one, other in zip(came, wanted, strict=True)]
    largest = max(map(abs, apart))
    off = [place for place, by in enumerate(apart) if abs(by) > 1e-9 * largest]
    if not all(math.isclose(abs(apart[place]), largest, rel_tol=1e-6) for place in off):
        return []
    more, less = ([place for place in off if sign * apart[place] > 0] for sign in (1, -1))
    ends = [f"too {how} in {_entries(some)}" for how, some in (("large", more), ("small", less)) if some]
    return [f"It is {join(ends)}, each time by as much."] if ends else []


def _entries(places: Sequence[int]) -> str:
    return f"entry {places[0]}" if len(places) == 1 else f"entries {join(places)}"


def _flat_pairs(came: Any, wanted: Any) -> list[tuple[Any, Any]]:
    if isinstance(wanted, Sequence) and isinstance(came, Sequence) and len(came) == len(wanted):
        return [pair for both in zip(came, wanted, strict=True) for pair in _flat_pairs(*both)]
    return [(came, wanted)]


def _of(way: Callable[..., Any], case: Case) -> Callable[[], Any]:
    return lambda: way(case)


def _alike(came: Any, wanted: Any) -> bool:
    if isinstance(wanted, Sequence):
        return isinstance(came, list) and len(came) == len(wanted) and all(map(is_number, came))
    return is_number(came)
