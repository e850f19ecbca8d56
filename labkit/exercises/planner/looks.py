"""How numbers for several plans are held against the right ones, and how a wrong one is said and named."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from labkit.checks.as_if import as_if
from labkit.checks.case import Case, Values
from labkit.checks.declared import Mistake
from labkit.checks.finding import Find, Finding
from labkit.checks.wire import Wire
from labkit.exercises.planner.as_data import is_number

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
        yield Finding(name, text, shown(theirs), shown(mine))

    return find


def _of(way: Callable[..., Any], case: Case) -> Callable[[], Any]:
    return lambda: way(case)


def _alike(came: Any, wanted: Any) -> bool:
    if isinstance(wanted, Sequence):
        return isinstance(came, list) and len(came) == len(wanted) and all(map(is_number, came))
    return is_number(came)
