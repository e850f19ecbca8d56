"""count_bytes and ring_cost: what an all-reduce costs. Expected values are counted step by step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

from labkit.checks.case import Case, Got, Value, Values
from labkit.checks.judged import Mistake
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire
from labkit.words import number

Call = tuple[str, tuple[Any, ...]]


def calls_case(name: str, calls: Sequence[Call]) -> Case:
    """Return a case of one rank that calls these functions with these arguments."""
    listed: list[Value] = [{"function": function, "args": list(args)} for function, args in calls]
    return Case(name, 1, ({"calls": listed},))


def _through_root(num_bytes: float, world_size: int) -> float:
    up = sum(num_bytes for rank in range(world_size) if rank != 0)
    down = sum(num_bytes for rank in range(world_size) if rank != 0)
    return up + down


def _through_a_link_of_the_ring(num_bytes: float, world_size: int) -> float:
    return math.fsum(num_bytes / world_size for _half in range(2) for _step in range(1, world_size))


def _ring_time(num_bytes: float, world_size: int, latency_s: float, bandwidth: float) -> float:
    return math.fsum(latency_s + num_bytes / world_size / bandwidth for _half in range(2) for _ in range(1, world_size))


def _tree_time(num_bytes: float, world_size: int, latency_s: float, bandwidth: float) -> float:
    reached, rounds = 1, 0
    while reached < world_size:
        reached, rounds = 2 * reached, rounds + 1
    return math.fsum(latency_s + num_bytes / bandwidth for _way in range(2) for _ in range(rounds))


def _busbw(num_bytes: float, seconds: float, world_size: int) -> float:
    return _through_a_link_of_the_ring(num_bytes, world_size) / seconds


_COUNTED: dict[str, Callable[..., float]] = {
    "root_bytes": _through_root,
    "ring_bytes": _through_a_link_of_the_ring,
    "ring_seconds": _ring_time,
    "tree_seconds": _tree_time,
    "bus_bandwidth": _busbw,
}


def calls_of(case: Case) -> list[tuple[str, list[Any]]]:
    """Return the calls of a case: function and arguments."""
    return [(call["function"], call["args"]) for call in cast(list[dict[str, Any]], case.inputs[0]["calls"])]


def counted(case: Case) -> list[Values]:
    """Return what each call must give (the oracle)."""
    return [{"values": [_COUNTED[function](*args) for function, args in calls_of(case)]}]


def _pairs(case: Case, got: Got) -> list[tuple[str, list[Any], float, Value]]:
    if not isinstance(got, tuple) or not isinstance(got[0].get("values"), list):
        return []
    values = cast(list[Value], got[0]["values"])
    expected = cast(list[float], counted(case)[0]["values"])
    return [(f, a, e, v) for (f, a), e, v in zip(calls_of(case), expected, values, strict=False)]


def _right(expected: float, value: Value) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isclose(value, expected, rel_tol=1e-9, abs_tol=1e-15)
    )


def judge(case: Case, got: Got, wire: Wire) -> Verdict:
    """Return whether every call gave the counted value."""
    pairs = _pairs(case, got)
    if len(pairs) != len(calls_of(case)):
        return Verdict(False, message="The functions did not return one value for each call.")
    for function, args, expected, value in pairs:
        if not _right(expected, value):
            call = f"{function}({', '.join(map(number, args))})"
            came = number(value) if isinstance(value, int | float) else f"{value!r:.60} ({type(value).__name__})"
            return Verdict(
                False, f"{call} gave {came}, expected {number(expected)}.", expected=number(expected), got=came
            )
    return Verdict(True)


def as_if(function: str, wrong: Callable[..., float]) -> Callable[[Case, Got, Wire], bool]:
    """Return whether all wrong values of a function are those of a known wrong formula."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        mine = [(args, expected, value) for f, args, expected, value in _pairs(case, got) if f == function]
        if not mine or all(_right(expected, value) for _, expected, value in mine):
            return False
        return all(_right(wrong(*args), value) for args, _, value in mine)

    return seen


def _returns_nothing(case: Case, got: Got, wire: Wire) -> bool:
    return any(value is None for *_, value in _pairs(case, got))


NOTHING = Mistake(
    "returns nothing", "A function returned None: print shows a value, return hands it back.", _returns_nothing
)
