"""Cases that call plain functions with numbers, and how a wrong number is said."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from labkit.checks.case import Case, Got, Value, Values
from labkit.checks.exercise import Oracle
from labkit.checks.judged import Judge, Mistake
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire
from labkit.words import number

Call = tuple[str, tuple[Any, ...]]
Counted = Mapping[str, Callable[..., Any]]


def calls_case(name: str, calls: Sequence[Call]) -> Case:
    """Return a case of one rank that calls these functions with these arguments."""
    listed: list[Value] = [{"function": function, "args": list(args)} for function, args in calls]
    return Case(name, 1, ({"calls": listed},))


def _calls(case: Case) -> list[tuple[str, list[Any]]]:
    return [(call["function"], call["args"]) for call in cast(list[dict[str, Any]], case.inputs[0]["calls"])]


def counting(counted: Counted) -> Oracle:
    """Return the oracle that calls these functions in the learner's place."""

    def oracle(case: Case) -> list[Values]:
        return [{"values": [counted[function](*args) for function, args in _calls(case)]}]

    return oracle


def right(expected: float | list[float], value: object) -> bool:
    """Return whether a value is the expected number or list of numbers, up to rounding."""
    if isinstance(expected, list):
        return isinstance(value, list) and len(value) == len(expected) and all(map(right, expected, value))
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isclose(value, expected, rel_tol=1e-9, abs_tol=1e-15)
    )


def values_of(case: Case, got: Got) -> list[tuple[str, list[Any], Value]]:
    """Return (function, arguments, value) of each call; empty if nothing came."""
    if not isinstance(got, tuple) or not isinstance(got[0].get("values"), list):
        return []
    values = cast(list[Value], got[0]["values"])
    return [(function, args, value) for (function, args), value in zip(_calls(case), values, strict=False)]


def judging(counted: Counted) -> Judge:
    """Return the judge that asks for the counted value of every call."""

    def judge(case: Case, got: Got, wire: Wire) -> Verdict:
        values = values_of(case, got)
        if len(values) != len(_calls(case)):
            return Verdict(False, message="The functions did not return one value for each call.")
        for function, args, value in values:
            expected = counted[function](*args)
            if not right(expected, value):
                call = f"{function}({', '.join(map(number, args))})"
                came = number(value) if isinstance(value, int | float) else f"{value!r:.60} ({type(value).__name__})"
                return Verdict(
                    False, f"{call} gave {came}, expected {number(expected)}.", expected=number(expected), got=came
                )
        return Verdict(True)

    return judge


def as_if(counted: Counted, function: str, wrong: Callable[..., Any]) -> Callable[[Case, Got, Wire], bool]:
    """Return whether the first wrong value is this function's, and all of its values are those of a wrong formula."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        values = values_of(case, got)
        first = next((name for name, args, value in values if not right(counted[name](*args), value)), None)
        return first == function and all(right(wrong(*args), value) for name, args, value in values if name == function)

    return seen


NOTHING = Mistake(
    "returns nothing",
    "A function returned None: print shows a value, return hands it back.",
    lambda case, got, wire: any(value is None for *_, value in values_of(case, got)),
)
