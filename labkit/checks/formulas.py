"""Cases that call plain functions with numbers, and how a wrong number is said and named.

`formulas` makes the exercise.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from labkit.checks.as_if import as_if as as_if_it_were
from labkit.checks.case import Case, Got, Value, Values
from labkit.checks.declared import Mistake, Way, declared
from labkit.checks.exercise import Exercise, Oracle
from labkit.checks.finding import Find, Finding
from labkit.checks.how_off import Called, how_off, how_off_list, is_number
from labkit.checks.values import listed
from labkit.checks.wire import Wire
from labkit.words import number

Call = tuple[str, tuple[Any, ...]]
Counted = Mapping[str, Callable[..., Any]]


def calls_case(name: str, calls: Sequence[Call]) -> Case:
    """Return a case of one rank that calls these functions with these arguments."""
    listed: list[Value] = [{"function": function, "args": list(args)} for function, args in calls]
    return Case(name, 1, ({"calls": listed},))


def _calls(case: Case) -> list[tuple[str, list[Any]]]:
    return [(call["function"], call["args"]) for call in listed(case.inputs[0], "calls")]


def counting(counted: Counted) -> Oracle:
    """Return the oracle that calls these functions in the learner's place."""

    def oracle(case: Case) -> list[Values]:
        return [{"values": [counted[function](*args) for function, args in _calls(case)]}]

    return oracle


def right(expected: float | list[float], value: object) -> bool:
    """Return whether a value is the expected number or list of numbers, up to rounding."""
    if isinstance(expected, list):
        return isinstance(value, list) and len(value) == len(expected) and all(map(right, expected, value))
    return is_number(value) and math.isclose(value, expected, rel_tol=1e-9, abs_tol=1e-15)


def values_of(case: Case, got: Got) -> list[tuple[str, list[Any], Value]]:
    """Return (function, arguments, value) of each call; empty if nothing came."""
    if not isinstance(got, tuple) or not isinstance(got[0].get("values"), list):
        return []
    values = listed(got[0], "values")
    return [(function, args, value) for (function, args), value in zip(_calls(case), values, strict=False)]


RETURNS_NOTHING = Mistake("returns nothing", "A function returned None: print shows a value, return hands it back.")


def formulas(
    *,
    counted: Counted,
    mistakes: Sequence[Mistake],
    otherwise: Callable[[Sequence[tuple[Sequence[Any], Any]]], str] = lambda calls: "",
    shown: Callable[[Any], str] = number,
    **about: Any,
) -> Exercise:
    """Return the exercise whose functions are formulas.

    Args:
        counted: The right ones.
        mistakes: Each gives, under a function's name, the formula that is taken for the right one.
        otherwise: Names what no formula gives, from (arguments, value) of the function's wrong calls.
        shown: How a value is written.
        **about: The other fields of Exercise.
    """
    look = where_wrong(counted, mistakes, otherwise=otherwise, shown=shown)
    named = (RETURNS_NOTHING, *mistakes)
    return declared(oracle=counting(counted), looks=(look,), mistakes=named, distributed=False, **about)


def where_wrong(
    counted: Counted,
    mistakes: Sequence[Mistake],
    *,
    otherwise: Callable[[Sequence[tuple[Sequence[Any], Any]]], str] = lambda calls: "",
    shown: Callable[[Any], str] = number,
) -> Find:
    """Return the find that yields every call whose value is not the right formula's.

    It is named where all values of the function in a case are those of one wrong formula. Arguments: see `formulas`.
    """

    def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
        calls = values_of(case, got)
        for function, args, value in calls:
            expected = counted[function](*args)
            if right(expected, value):
                continue
            mine = [(each, came) for name, each, came in calls if name == function]
            ways = [(each.name, _results(way, mine)) for each in mistakes for way in each.given(function)]
            mistake = as_if_it_were([came for _, came in mine], ways, _same)
            if value is None:
                mistake = RETURNS_NOTHING.name
            elif not mistake:
                mistake = otherwise([each for each in mine if not right(counted[function](*each[0]), each[1])])
            elsewise = "" if mistake else _how_off(counted[function], mine, (expected, value))
            call = f"{function}({', '.join(map(number, args))})"
            fits = value is not None and type(value) in (type(expected), int, float)
            came = shown(value) if fits else f"{value!r:.60} ({type(value).__name__})"
            text = f"{call} gave {came}, expected {shown(expected)}. {elsewise}".strip()
            yield Finding(mistake, text, shown(expected), came)

    return find


def _how_off(right_one: Callable[..., Any], calls: Sequence[tuple[Sequence[Any], Any]], first: tuple[Any, Any]) -> str:
    """Return how values are off that no mistake gives, in a sentence, or ""."""
    expected, value = first
    if isinstance(expected, list):
        return how_off_list(value, expected) if isinstance(value, list) else ""
    parameters = list(inspect.signature(right_one).parameters)
    return how_off(parameters, [Called(args, came, right_one(*args)) for args, came in calls])


def _same(came: Any, other: Any) -> bool:
    return right(other, came)


def _results(wrong: Way, calls: Sequence[tuple[Sequence[Any], Any]]) -> Callable[[], list[Any]]:
    return lambda: [wrong(*args) for args, _ in calls]
