"""0.2 to 0.4: functions of plain data, called several times in one case, their values compared one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from labkit.checks.case import Case, Got, Value, Values
from labkit.checks.judged import Mistake
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire

Expected = Callable[[Case], list[Value]]
Seen = Callable[[Case, Got, Wire], bool]


def answers_of(got: Got) -> list[Value]:
    """Return what the function gave for each call."""
    found = got[0].get("answers") if isinstance(got, tuple) else None
    return found if isinstance(found, list) else []


def oracle_of(expected: Expected) -> Callable[[Case], list[Values]]:
    """Return the oracle of an exercise whose right values are these."""
    return lambda case: [{"answers": expected(case)}]


def judge_of(expected: Expected, call: Callable[[Case, int], str]) -> Callable[[Case, Got, Wire], Verdict]:
    """Return a judge that compares value by value and shows the first call that is wrong.

    Args:
        expected: The right values.
        call: A call of the case in words, by its position.
    """

    def judge(case: Case, got: Got, wire: Wire) -> Verdict:
        right = expected(case)
        came = answers_of(got)
        for place, value in enumerate(right):
            mine = came[place] if place < len(came) else None
            if not same(mine, value):
                shown, wanted = in_words(mine), in_words(value)
                return Verdict(
                    False, f"{call(case, place)} gave {shown}, expected {wanted}.", expected=wanted, got=shown
                )
        return Verdict(True)

    return judge


def same(mine: Value, value: Value) -> bool:
    """Return whether two values are equal and of equal types, so that "1" and True are no 1."""
    if isinstance(value, list):
        return isinstance(mine, list) and len(mine) == len(value) and all(map(same, mine, value))
    return type(mine) is type(value) and mine == value


def in_words(value: Value) -> str:
    """Return a value as a message shows it."""
    if isinstance(value, dict):
        return f"{value['raised']} raised"
    if value is None:
        return "nothing (None)"
    return f"{value!r}"[:120]


def as_if(expected: Expected, wrong: Callable[[Case, int], Value]) -> Seen:
    """Return whether every wrong value is what a known wrong rule gives, and some value is wrong."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        came, right = answers_of(got), expected(case)
        if len(came) != len(right):
            return False
        bad = [place for place in range(len(right)) if not same(came[place], right[place])]
        return bool(bad) and all(same(came[place], wrong(case, place)) for place in bad)

    return seen


def _returns_nothing(case: Case, got: Got, wire: Wire) -> bool:
    return any(value is None for value in answers_of(got))


NOTHING = Mistake(
    "returns nothing", "The function returned None: print shows a value, return hands it back.", _returns_nothing
)


def listed(values: Sequence[Value]) -> list[Value]:
    """Return values as a list that crosses the line between a rank and its judge."""
    return cast(list[Value], list(values))
