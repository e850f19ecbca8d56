"""Cases that call functions of tensors, and what is wrong with an element (place_keys and hot_keys)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from labkit.checks.as_if import as_if
from labkit.checks.case import Case, Value, Values
from labkit.checks.compare import difference, listing
from labkit.checks.declared import Mistake, declared
from labkit.checks.exercise import Exercise
from labkit.checks.finding import Find, Finding
from labkit.checks.how_off import how_off_list
from labkit.checks.structure import WRONG_TYPE
from labkit.checks.values import listed
from labkit.checks.wire import Wire

Call: TypeAlias = tuple[str, tuple[Any, ...]]
Right: TypeAlias = Mapping[str, Callable[..., Tensor]]
Off: TypeAlias = Callable[[str, Sequence[Any], Tensor, Tensor], str]
WRONG_KIND = Mistake(WRONG_TYPE, "The result is a tensor of the shape and type that the docstring names.")


def _as_numbers(function: str, args: Sequence[Any], came: Tensor, wanted: Tensor) -> str:
    return how_off_list(came.flatten().tolist(), wanted.flatten().tolist())


def calls_case(name: str, calls: Sequence[Call]) -> Case:
    """Return a case of one rank that calls these functions with these arguments."""
    asked: list[Value] = [{"function": function, "args": list(args)} for function, args in calls]
    return Case(name, 1, ({"calls": asked},))


def tensor_formulas(*, right: Right, mistakes: Sequence[Mistake], off: Off = _as_numbers, **about: Any) -> Exercise:
    """Return the exercise whose functions make tensors of tensors.

    Args:
        right: The right ones.
        mistakes: Each gives, under a function's name, the formula that is taken for the right one.
        off: How a result is off that no formula gives, in a sentence, from arguments, what came and what should have.
        **about: The other fields of Exercise.
    """
    return declared(
        oracle=lambda case: [{"values": [right[each["function"]](*each["args"]) for each in _calls(case)]}],
        looks=(_where_wrong(right, mistakes, off),),
        mistakes=mistakes,
        distributed=False,
        **about,
    )


def _where_wrong(right: Right, mistakes: Sequence[Mistake], off: Off) -> Find:
    """Return what yields the first wrong element, named by the wrong way that gives all of a function's values."""

    def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
        for call, came in zip(_calls(case), listed(got[0], "values"), strict=True):
            function, args = call["function"], call["args"]
            wanted = right[function](*args)
            wrong = difference(came, wanted, _allowed(wanted))
            if wrong is None:
                continue
            mine = [(asked["args"], value) for asked, value in _of(function, case, got)]
            given = [each for each, _ in mine]
            tried = [(each.name, partial(_made, way, given)) for each in mistakes for way in each.given(function)]
            name = as_if([value for _, value in mine], tried, _same)
            what = f"element {wrong.index} is" if wrong.index >= 0 else "gave"
            more = "" if name or not isinstance(came, Tensor) else off(function, args, came, wanted)
            shown = ", ".join(listing(arg) if isinstance(arg, Tensor) else str(arg) for arg in args)
            yield Finding(
                name,
                f"{function}({shown}): {what} {wrong.got}, expected {wrong.expected}. {more}".strip(),
                listing(wanted.flatten(), max(wrong.index, 0)),
                listing(came.flatten(), max(wrong.index, 0)) if isinstance(came, Tensor) else wrong.got,
            )

    return find


def _calls(case: Case) -> list[dict[str, Any]]:
    return listed(case.inputs[0], "calls")


def _of(function: str, case: Case, got: tuple[Values, ...]) -> Iterator[tuple[dict[str, Any], Tensor]]:
    pairs = zip(_calls(case), listed(got[0], "values"), strict=True)
    return ((each, came) for each, came in pairs if each["function"] == function)


def _made(way: Callable[..., Tensor], arguments: Sequence[Sequence[Any]]) -> list[Tensor]:
    return [way(*given) for given in arguments]


def _allowed(wanted: Tensor) -> Tensor | None:
    return (1e-9 * (1 + wanted.abs())).double() if wanted.is_floating_point() else None


def _same(came: list[Tensor], made: list[Tensor]) -> bool:
    return all(
        one.shape == other.shape
        and one.dtype == other.dtype
        and bool(torch.allclose(one.double(), other.double(), rtol=1e-9, atol=1e-9))
        for one, other in zip(came, made, strict=True)
    )
