"""How wrong numbers are off, in a sentence."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import pytest

from labkit.checks.case import Value
from labkit.checks.how_off import Called, how_off, how_off_list, one_at_a_time
from labkit.checks.rooms import find
from labkit.checks.values import records
from labkit.checks.wire import Wire
from labkit.exercises.collectives.ring_cost.exercise import RIGHT as RING_COST
from labkit.exercises.ddp.overlap_gain.exercise import _PARAMETERS
from labkit.exercises.parameter_server.server_or_ring.exercise import COUNTED as SERVER_OR_RING
from labkit.exercises.ring_all_reduce.count_bytes.exercise import RIGHT as COUNT_BYTES
from tests.checks.lesson_cells import namespace

NAMES = ("num_bytes", "world_size", "latency_s", "bandwidth_Bps")
CALLS = one_at_a_time(1e9, 4, 1e-5, 1e10)


def ring(b: float, n: int, a: float, w: float) -> float:
    return 2 * (n - 1) * (a + b / n / w)


def off(wrong: Callable[..., float], right: Callable[..., float] = ring) -> str:
    return how_off(NAMES, [Called(args, wrong(*args), right(*args)) for args in CALLS])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda *args: 2 * ring(*args), "Every result is twice what it should be."),
        (lambda *args: ring(*args) / 3, "Every result is 3 times too small."),
        (lambda *args: 1000 * ring(*args), "Every result is 1000 times what it should be. Check the units."),
        (lambda *args: ring(*args) / 8, "Every result is 8 times too small. Bits or bytes?"),
        (lambda *args: -ring(*args), "Every result is right but for its sign."),
        (lambda *args: 1 + ring(*args), "Every result is too large by 1."),
        (lambda *args: 1 / ring(*args), "Every result is upside down: one divided by what it should be."),
        (lambda *args: math.floor(ring(*args)), "Every result is rounded down."),
        (lambda b, n, a, w: n * ring(b, n, a, w), "Every result is too large by a factor of world_size."),
        (lambda b, n, a, w: ring(b, n, a, w) / (n - 1), "Every result is too small by a factor of world_size - 1."),
        (lambda b, n, a, w: ring(b, n, a, w) + 2 * a, "Every result is too large by 2 times latency_s."),
        (lambda b, n, a, w: ring(b, n, 0, w), "latency_s changes nothing in your result, and it should."),
        (
            lambda b, n, a, w: 2 * (n - 1) * a,
            "num_bytes and bandwidth_Bps change nothing in your result, and they should.",
        ),
        (
            lambda b, n, a, w: 2 * (n - 1) * (a - b / n / w),
            "The result should grow as num_bytes grows from 1e+09 to 2e+09; yours shrinks.",
        ),
        (
            lambda b, n, a, w: 2 * (n - 1) * (a + b / n / w / 2),
            "As num_bytes grows from 1e+09 to 2e+09, the result should change by 0.15; yours changes by 0.075. "
            "It follows latency_s as it should.",
        ),
        (ring, ""),
        (lambda *args: math.nan, ""),
    ],
)
def test_it_says_what_all_calls_have_in_common(wrong: Callable[..., float], said: str) -> None:
    assert off(wrong) == said


def test_a_difference_that_drowns_in_rounding_shows_nothing() -> None:
    assert "latency_s" not in off(lambda b, n, a, w: 2 * (n - 1) * (a + b * n * w))


def test_what_is_far_too_large_still_shows_its_direction() -> None:
    said = off(lambda b, n, a, w: 2 * (n - 1) * (a + b / n / a))
    assert said == "The result should grow as latency_s grows from 1e-05 to 2e-05; yours shrinks."


def test_where_some_calls_are_right_it_speaks_of_the_wrong_ones() -> None:
    assert off(lambda b, n, a, w: ring(b, n, a, w) * (2 if w > 1e10 or n > 4 else 1)).startswith("Every wrong result")


def test_values_near_the_right_ones_are_rounded_on_the_way() -> None:
    said = off(lambda b, n, a, w: 2 * (n - 1) * b // 7e6, lambda b, n, a, w: 2 * (n - 1) * b / 7e6)
    assert said == "Every wrong result is rounded down."
    said = off(lambda b, n, a, w: 2 * (n - 1) * b / 7e6 + 0.3, lambda b, n, a, w: 2 * (n - 1) * b / 7e6)
    assert said == "Every result is too large by 0.3."


@pytest.mark.parametrize(
    ("came", "said"),
    [
        ([3, 2, 1], "The right numbers, in reverse order."),
        ([2, 1, 3], "The right numbers, in another order."),
        ([1, 2], "It has 2 entries where 3 belong."),
        ([2, 3, 4], "Every entry is too large by 1."),
        ([2, 4, 6], "Every entry is twice what it should be."),
        ([1, 2, 5], "Entry 2 is the only wrong one. They add up to 8 instead of 6."),
        ([2, 1, 2], "The first wrong entry is entry 0. They add up to 5 instead of 6."),
        ([0, 0, 0], "Every entry is 0."),
        (["a"], ""),
    ],
)
def test_it_says_how_a_list_is_off(came: list[Any], said: str) -> None:
    assert how_off_list(came, [1, 2, 3]) == said


@pytest.mark.parametrize(
    ("number", "counted"), [("02", COUNT_BYTES), ("03", RING_COST), ("06", SERVER_OR_RING), ("04", None)]
)
def test_arguments_are_called_what_the_learner_calls_them(number: str, counted: Any) -> None:
    names = namespace(number=number)
    right = {name: list(inspect.signature(each).parameters) for name, each in (counted or {}).items()}
    right |= {} if counted else {"overlapped_seconds": list(_PARAMETERS)}
    assert right == {name: list(inspect.signature(names[name]).parameters) for name in right}


def test_entries_that_should_be_zero_and_are_not_have_no_factor() -> None:
    assert how_off_list([2, 4, 1], [1, 2, 0]).startswith("The first wrong entry")


@pytest.mark.parametrize("wrong", [lambda b, n: 2 * (n + 1) * b / n, lambda b, n: 10**400])
def test_what_is_zero_for_one_rank_or_fits_in_no_float_is_a_wrong_number_like_others(
    wrong: Callable[..., float],
) -> None:
    exercise = find("count_bytes")
    calls = {case: [tuple(each.values()) for each in records(case.inputs[0], "calls")] for case in exercise.visible}
    case = next(case for case, called in calls.items() if any(args[1] == 1 for _, args in called))
    given = {**COUNT_BYTES, "ring_bytes": wrong}
    values: list[Value] = [given[function](*args) for function, args in calls[case]]
    found = list(exercise.find(case, ({"values": values},), Wire(())))
    assert found and all(each.message.startswith("ring_bytes(") for each in found)
