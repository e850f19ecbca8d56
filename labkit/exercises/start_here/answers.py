"""Functions of plain data, called several times in one case, their values compared one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, TypeAlias, cast

from labkit.checks.case import Case, Failure, Got, Value, Values
from labkit.checks.declared import Mistake, declared
from labkit.checks.exercise import Exercise
from labkit.checks.finding import Finding
from labkit.checks.wire import Wire

Expected: TypeAlias = Callable[[Case], list[Value]]

NOTHING = Mistake(
    "returns nothing",
    "The function returned None: print shows a value, return hands it back.",
    seen=lambda case, got, wire: any(value is None for value in values_of(got)),
)


def answers(
    *, expected: Expected, call: Callable[[Case, int], str], mistakes: Sequence[Mistake], **about: Any
) -> Exercise:
    """Return the exercise whose function is called several times in a case.

    Args:
        expected: The right values.
        call: A call of the case in words, by its position.
        mistakes: Each may give, under "answers", the value of a call of the case by its position.
        **about: The other fields of Exercise.
    """

    def wrong(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
        right, mine = expected(case), values_of(got)

        def giving(places: Sequence[int]) -> Iterator[str]:
            """Yield the mistakes that give what came in these calls."""
            for each in mistakes if places else ():
                if any(all(same(mine[at], way(case, at)) for at in places) for way in each.given("answers")):
                    yield each.name

        bad = [place for place, value in enumerate(right) if not same(mine[place], value)]
        marked = [each.name for each in mistakes if each.marks(case, got, wire)]
        nothing = marked if None in mine else []
        name = next(chain(nothing, giving(range(len(right))), marked, giving(bad)), "")
        for place in bad:
            shown, wanted = in_words(mine[place]), in_words(right[place])
            did = "raised" if isinstance(mine[place], dict) else "gave"
            yield Finding(name, f"{call(case, place)} {did} {shown}, expected {wanted}.", wanted, shown)

    return declared(
        oracle=lambda case: [{"answers": expected(case)}],
        looks=(wrong,),
        mistakes=mistakes,
        distributed=False,
        **about,
    )


def values_of(got: Got) -> list[Value]:
    """Return the values that came, none of a failure."""
    return [] if isinstance(got, Failure) else cast("list[Value]", got[0]["answers"])


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
