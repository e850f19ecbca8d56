"""0.2 to 0.4: functions of plain data, called several times in one case, their values compared one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias, cast

from labkit.checks.case import Case, Value, Values
from labkit.checks.finding import Find, Finding
from labkit.checks.wire import Wire

Expected: TypeAlias = Callable[[Case], list[Value]]
Look: TypeAlias = Callable[[Case, Sequence[Value], Sequence[Value]], bool]
"""Whether answers, some of them wrong, bear the marks of a mistake: what came and what is right, call by call."""

NOTHING = "returns nothing"
NOTHING_HINT = "The function returned None: print shows a value, return hands it back."


def oracle_of(expected: Expected) -> Callable[[Case], list[Values]]:
    """Return the oracle of an exercise whose right values are these."""
    return lambda case: [{"answers": expected(case)}]


def find_of(expected: Expected, call: Callable[[Case, int], str], looks: Mapping[str, Look]) -> Find:
    """Return a find that compares value by value, shows the first call that is wrong, and names the mistake.

    Args:
        expected: The right values.
        call: A call of the case in words, by its position.
        looks: Name of a mistake -> how wrong answers look that bear it, the likeliest first.
    """

    def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
        right, came = expected(case), cast("list[Value]", got[0]["answers"])
        for place, (mine, value) in enumerate(zip(came, right, strict=True)):
            if not same(mine, value):
                names = (name for name, look in looks.items() if look(case, came, right))
                shown, wanted = in_words(mine), in_words(value)
                did = "raised" if isinstance(mine, dict) else "gave"
                text = f"{call(case, place)} {did} {shown}, expected {wanted}."
                yield Finding(next(names, ""), text, wanted, shown)

    return find


def nothing(case: Case, came: Sequence[Value], right: Sequence[Value]) -> bool:
    """Return whether a call returned None."""
    return any(value is None for value in came)


def as_if(wrong: Callable[[Case, int], Value]) -> Look:
    """Return whether every wrong value is what a known wrong rule gives."""

    def look(case: Case, came: Sequence[Value], right: Sequence[Value]) -> bool:
        bad = [place for place, value in enumerate(right) if not same(came[place], value)]
        return all(same(came[place], wrong(case, place)) for place in bad)

    return look


def same(mine: Value, value: Value) -> bool:
    """Return whether two values are equal and of equal types, so that "1" and True are no 1."""
    if isinstance(value, list):
        return isinstance(mine, list) and len(mine) == len(value) and all(map(same, mine, value))
    return type(mine) is type(value) and mine == value


def in_words(value: Value) -> str:
    """Return a value as a message shows it."""
    if isinstance(value, dict):
        return f"{'an' if str(value['raised'])[:1] in 'AEIOU' else 'a'} {value['raised']}"
    if value is None:
        return "nothing (None)"
    if isinstance(value, str) and value.startswith("a "):  # what came instead of a value, in words
        return value
    return f"{value!r}"[:120]


def listed(values: Sequence[Value]) -> list[Value]:
    """Return values as a list that crosses the line between a rank and its judge."""
    return cast(list[Value], list(values))
