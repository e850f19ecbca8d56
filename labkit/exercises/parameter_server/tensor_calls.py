"""Cases that call functions of tensors, and how a wrong element is said (place_keys and hot_keys)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor

from labkit.checks.case import Case, Got, Value
from labkit.checks.compare import difference, listing
from labkit.checks.exercise import Oracle
from labkit.checks.judged import Judge, Mistake
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire

Call: TypeAlias = tuple[str, tuple[Any, ...]]
Right: TypeAlias = Mapping[str, Callable[..., Tensor]]


def calls_case(name: str, calls: Sequence[Call]) -> Case:
    """Return a case of one rank that calls these functions with these arguments."""
    listed: list[Value] = [{"function": function, "args": list(args)} for function, args in calls]
    return Case(name, 1, ({"calls": listed},))


def _calls(case: Case) -> list[dict[str, Any]]:
    return cast(list[dict[str, Any]], case.inputs[0]["calls"])


def oracle_of(right: Right) -> Oracle:
    """Return the oracle that calls these functions in the learner's place."""
    return lambda case: [{"values": [right[each["function"]](*each["args"]) for each in _calls(case)]}]


def _allowed(wanted: Tensor) -> Tensor | None:
    return (1e-9 * (1 + wanted.abs())).double() if wanted.is_floating_point() else None


def judge_of(right: Right) -> Judge:
    """Return the judge that asks for the right value of every element."""

    def judge(case: Case, got: Got, wire: Wire) -> Verdict:
        assert isinstance(got, tuple)
        for each, came in zip(_calls(case), cast(list[Value], got[0]["values"]), strict=True):
            wanted = right[each["function"]](*each["args"])
            wrong = difference(came, wanted, _allowed(wanted))
            if wrong is not None:
                what = f"element {wrong.index} is" if wrong.index >= 0 else "gave"
                numbers = ", ".join(
                    listing(arg) if isinstance(arg, Tensor) else str(arg) for arg in each["args"]
                )  # fmt: skip
                return Verdict(
                    False,
                    f"{each['function']}({numbers}): {what} {wrong.got}, expected {wrong.expected}.",
                    expected=listing(wanted.flatten(), max(wrong.index, 0)),
                    got=listing(came.flatten(), max(wrong.index, 0)) if isinstance(came, Tensor) else wrong.got,
                )
        return Verdict(True)

    return judge


def as_if(right: Right, function: str, wrong: Callable[..., Tensor]) -> Callable[[Case, Got, Wire], bool]:
    """Return whether all values of a function are those of a known wrong rule, and not all of them right."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        if not isinstance(got, tuple):
            return False
        mine = [
            (each["args"], came)
            for each, came in zip(_calls(case), cast(list[Value], got[0]["values"]), strict=True)
            if each["function"] == function
        ]
        if all(_equal(came, right[function](*args)) for args, came in mine):
            return False
        return all(_equal(came, wrong(*args)) for args, came in mine)

    return seen


def _equal(came: Value, made: Tensor) -> bool:
    return (
        isinstance(came, Tensor)
        and came.shape == made.shape
        and bool(torch.allclose(came.double(), made.double(), rtol=1e-9, atol=1e-9))
    )


def wrong_form(right: Right) -> Mistake:
    """Return the mistake of what is no tensor, or has another type or shape."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        if not isinstance(got, tuple):
            return False
        pairs = zip(_calls(case), cast(list[Value], got[0]["values"]), strict=True)
        for each, came in pairs:
            wanted = right[each["function"]](*each["args"])
            if not isinstance(came, Tensor) or came.shape != wanted.shape or came.dtype != wanted.dtype:
                return True
        return False

    return Mistake(
        "another type or shape", "The result is a tensor of the shape and type that the docstring names.", seen
    )
