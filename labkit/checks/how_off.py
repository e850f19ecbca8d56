"""How wrong numbers are off, in a sentence: a factor, a difference, an argument that changes nothing, another order.

It says what all calls of a function have in common. It knows no formula, so what it says holds whatever the slip was.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeGuard

from labkit.words import SIMPLE_FACTORS, join


class Called(NamedTuple):
    """A call: its arguments, the number that came and the one that should have."""

    args: Sequence[Any]
    came: float
    right: float


_UNITS = {1e3: " Check the units.", 1e6: " Check the units.", 1e9: " Check the units.", 8.0: " Bits or bytes?"}


def one_at_a_time(*args: float) -> list[tuple[float, ...]]:
    """Return the arguments, and once for each of them the arguments with that one doubled."""
    return [args, *((*args[:place], 2 * args[place], *args[place + 1 :]) for place in range(len(args)))]


def how_off(parameters: Sequence[str], calls: Sequence[Called]) -> str:
    """Return what the wrong results have in common, or "".

    Args:
        parameters: The function's, by name.
        calls: All calls of the function, right ones too.
    """
    if len(calls) < 2 or not all(is_number(each.came) and is_number(each.right) for each in calls):
        return ""
    wrong = [each for each in calls if not _close(each.came, each.right)]
    if not wrong:
        return ""
    every = "Every result" if len(wrong) == len(calls) else "Every wrong result"
    shared = next(_of_all(parameters, wrong), "")
    return f"{every} is {shared}" if shared else next(_of_parameters(parameters, calls), "")


def how_off_list(came: Sequence[Any], right: Sequence[Any]) -> str:
    """Return how a list of numbers is off, or ""."""
    if not all(map(is_number, [*came, *right])):
        return ""
    if len(came) != len(right):
        return f"It has {len(came)} entries where {len(right)} belong."
    shared = of_all_entries(came, right)
    if shared:
        return shared
    off = [place for place, (one, other) in enumerate(zip(came, right, strict=True)) if not _close(one, other)]
    total = "" if _close(sum(came), sum(right)) else f" They add up to {sum(came):.7g} instead of {sum(right):.7g}."
    which = f"Entry {off[0]} is the only wrong one." if len(off) == 1 else f"The first wrong entry is entry {off[0]}."
    return which + total


def of_all_entries(came: Sequence[float], right: Sequence[float]) -> str:
    """Return what all entries of a list have in common that is as long as it should be, or ""."""
    if len(came) != len(right) or not all(map(is_number, [*came, *right])):
        return ""
    if sorted(came) == sorted(right):
        backwards = list(came) == list(reversed(right))
        return "The right numbers, in reverse order." if backwards else "The right numbers, in another order."
    if len(right) < 2:
        return ""
    if not any(came):
        return "Every entry is 0."
    apart = {round(one - other, 9) for one, other in zip(came, right, strict=True)}
    if len(apart) == 1 and 0 not in apart:
        return f"Every entry is {_too(apart.pop())}."
    matched = all(other or not one for one, other in zip(came, right, strict=True))
    factor = _constant([one / other for one, other in zip(came, right, strict=True) if other]) if matched else 0.0
    if factor and not math.isclose(factor, 1, rel_tol=1e-3):
        return f"Every entry is {_factor(factor)}"
    return ""


def is_number(value: object) -> TypeGuard[float]:
    """Return whether it is a finite number to compute with: no bool, and no int beyond what a float holds."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return abs(value) <= sys.float_info.max


def _close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-15)


def _constant(values: Sequence[float]) -> float:
    """Return what all values are, 0 where they differ or there are none."""
    return values[0] if values and all(math.isclose(values[0], each, rel_tol=1e-6) for each in values) else 0.0


def _too(apart: float) -> str:
    return f"too {'large' if apart > 0 else 'small'} by {abs(apart):.4g}"


def _factor(factor: float) -> str:
    if _close(factor, -1):
        return "right but for its sign."
    unit = next(
        (said for size, said in _UNITS.items() if _constant([factor, size]) or _constant([1 / factor, size])), ""
    )
    if factor in SIMPLE_FACTORS:
        return f"{SIMPLE_FACTORS[factor]} what it should be.{unit}"
    if 0 < factor < 1 and math.isclose(1 / factor, round(1 / factor), rel_tol=1e-6):
        return f"{1 / factor:.7g} times too small.{unit}"
    return f"{factor:.4g} times what it should be.{unit}"


def _of_all(parameters: Sequence[str], wrong: Sequence[Called]) -> Iterator[str]:
    """Yield what all wrong results are, where at least two differ in what should have come."""
    if len({each.right for each in wrong}) < 2:
        return
    factors = [each.came / each.right for each in wrong if each.right]
    whole = len(factors) == len(wrong)
    if whole and _constant(factors) and not math.isclose(factors[0], 1, rel_tol=1e-3):
        yield _factor(factors[0])
    apart = [each.came - each.right for each in wrong]
    if _constant(apart):
        yield f"{_too(apart[0])}."
    if all(_close(each.came, math.floor(each.right)) for each in wrong):
        yield "rounded down."
    if all(_close(each.came, math.ceil(each.right)) for each in wrong):
        yield "rounded up."
    if all(abs(each) < 1 < abs(call.right) / 1000 for each, call in zip(apart, wrong, strict=True)):
        yield "off by less than 1: something is rounded on the way."
    if whole and all(each.came and _close(each.came * each.right, 1) for each in wrong):
        yield "upside down: one divided by what it should be."
    for name, of in _named_quantities(parameters, wrong):
        sizes = [of(each.args) for each in wrong]
        if len(set(sizes)) < 2 or 0 in sizes:
            continue
        ratio = _constant([factor / size for factor, size in zip(factors, sizes, strict=True)]) if whole else 0.0
        if _close(ratio, 1):
            yield f"too large by a factor of {name}."
        ratio = _constant([factor * size for factor, size in zip(factors, sizes, strict=True)]) if whole else 0.0
        if _close(ratio, 1):
            yield f"too small by a factor of {name}."
        steps = _constant([each / size for each, size in zip(apart, sizes, strict=True)])
        if steps and _close(2 * steps, round(2 * steps)):
            times = "" if abs(steps) == 1 else f"{abs(steps):g} times "
            yield f"too {'large' if steps > 0 else 'small'} by {times}{name}."


def _named_quantities(
    parameters: Sequence[str], calls: Sequence[Called]
) -> Iterator[tuple[str, Callable[[Sequence[Any]], float]]]:
    for place, name in enumerate(parameters):
        if all(is_number(each.args[place]) for each in calls):
            yield name, lambda args, place=place: args[place]  # type: ignore[misc]
            if all(isinstance(each.args[place], int) for each in calls):
                yield f"{name} - 1", lambda args, place=place: args[place] - 1  # type: ignore[misc]
                yield f"{name} + 1", lambda args, place=place: args[place] + 1  # type: ignore[misc]


def _of_parameters(parameters: Sequence[str], calls: Sequence[Called]) -> Iterator[str]:
    """Yield what is wrong with how the results follow one argument, from calls that differ in nothing else."""
    pairs = {name: list(_pairs(calls, place)) for place, name in enumerate(parameters)}
    off = {name: found for name, found in pairs.items() if not all(_follows(*pair) for pair in found)}
    dead = [name for name, found in off.items() if all(_close(one.came, other.came) for one, other in found)]
    if dead:
        what, they = ("change", "they") if len(dead) > 1 else ("changes", "it")
        yield f"{join(dead)} {what} nothing in your result, and {they} should."
    for name, found in off.items():
        if all((two.came - one.came) * (two.right - one.right) < 0 for one, two in found):
            way = "grow" if found[0][1].right > found[0][0].right else "shrink"
            yield (
                f"The result should {way} as {name} grows{_from_to(found[0], list(parameters).index(name))}; yours "
                f"{'shrinks' if way == 'grow' else 'grows'}."
            )
    followed = [name for name, found in pairs.items() if found and name not in off]
    for name, found in off.items():
        one, two = next(pair for pair in found if not _follows(*pair))
        rightly = f" It follows {join(followed)} as it should." if followed else ""
        yield (
            f"As {name} grows{_from_to((one, two), list(parameters).index(name))}, the result should change by "
            f"{two.right - one.right:.4g}; yours changes by {two.came - one.came:.4g}.{rightly}"
        )


def _from_to(pair: tuple[Called, Called], place: int) -> str:
    one, two = pair
    if isinstance(one.args[place], list):
        return ""
    return f" from {one.args[place]:.7g} to {two.args[place]:.7g}"


def _pairs(calls: Sequence[Called], place: int) -> Iterator[tuple[Called, Called]]:
    """Yield calls that differ in one argument, the one at this place, and in what should come; the smaller first.

    Where so much came that the difference would be lost in rounding, they show nothing.
    """
    for first, one in enumerate(calls):
        for other in calls[first + 1 :]:
            differ = [here for here, (a, b) in enumerate(zip(one.args, other.args, strict=True)) if a != b]
            size = 1e-9 * max(abs(one.came), abs(other.came))
            lost = abs(one.right - other.right) < size and abs(one.came - other.came) < size
            if differ == [place] and not _close(one.right, other.right) and not lost:
                yield (one, other) if bool(one.args[place] < other.args[place]) else (other, one)


def _follows(one: Called, two: Called) -> bool:
    """Return whether a result changes as it should, by as much or by the same factor."""
    apart = math.isclose(two.came - one.came, two.right - one.right, rel_tol=1e-6)
    alike = bool(one.came and one.right)
    return apart or (alike and math.isclose(two.came / one.came, two.right / one.right, rel_tol=1e-6))
