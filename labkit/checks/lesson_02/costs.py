"""2.2 and 2.8, what an all-reduce costs. Expected values are counted step by step, not taken from a formula."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

from labkit.checks.case import Case, Got, Value, Values
from labkit.checks.drivers.lesson_02 import call_functions
from labkit.checks.exercise import Exercise
from labkit.checks.verdict import Mistake, Verdict
from labkit.checks.wire import Wire
from labkit.checks.words import number

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


def _as_if(function: str, wrong: Callable[..., float]) -> Callable[[Case, Got, Wire], bool]:
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


def bytes_case(name: str, sizes: Sequence[tuple[int, int]]) -> Case:
    """Return a case of 2.2: (num_bytes, world_size) for both functions."""
    return calls_case(name, [(f, pair) for pair in sizes for f in ("root_bytes", "ring_bytes")])


BYTES = Exercise(
    id="2.2",
    title="Count the bytes",
    functions=("root_bytes", "ring_bytes"),
    driver=call_functions,
    oracle=counted,
    judge=judge,
    visible=(
        bytes_case("2 and 4 ranks, 1 MB", [(1_000_000, 2), (1_000_000, 4)]),
        bytes_case("3 ranks, 100 bytes; one rank", [(100, 3), (100, 1)]),
    ),
    distributed=False,
    hints=(
        "Draw three ranks. For each arrow that touches rank 0, how many bytes does it carry?",
        "Rank 0 gets a whole tensor from each of the other N-1 ranks and sends one back to each. In the ring a "
        "message is "
        "one chunk, num_bytes / N, and a rank sends N-1 of them in each of two halves.",
        "root: two directions x (N-1) ranks x num_bytes. ring: two halves x (N-1) steps x num_bytes / N.",
    ),
    mistakes=(
        NOTHING,
        Mistake(
            "one direction only",
            "root_bytes counts one direction: what rank 0 receives and what it sends both pass its link.",
            _as_if("root_bytes", lambda b, n: (n - 1) * b),
        ),
        Mistake(
            "rank 0 counted as its own peer",
            "root_bytes counts N messages each way; rank 0 sends nothing to itself, so there are N-1.",
            _as_if("root_bytes", lambda b, n: 2 * n * b),
        ),
        Mistake(
            "one half of the ring only",
            "ring_bytes counts one half: the reduce-scatter and the all-gather each take N-1 steps.",
            _as_if("ring_bytes", lambda b, n: (n - 1) / n * b),
        ),
        Mistake(
            "whole tensor at each step",
            "ring_bytes counts whole tensors: a step sends one chunk, num_bytes / N.",
            _as_if("ring_bytes", lambda b, n: 2 * (n - 1) * b),
        ),
        Mistake(
            "N steps",
            "ring_bytes counts N steps in each half: after N-1 a chunk has met everyone.",
            _as_if("ring_bytes", lambda b, n: 2 * b),
        ),
        Mistake(
            "rounded down",
            "ring_bytes was rounded down: use / and not //, it is a float.",
            _as_if("ring_bytes", lambda b, n: 2 * (n - 1) * (b // n)),
        ),
        Mistake(
            "sent and received added up",
            "ring_bytes counts what a rank sends and what it receives; only what it sends is asked for.",
            _as_if("ring_bytes", lambda b, n: 4 * (n - 1) / n * b),
        ),
        Mistake(
            "the two functions swapped",
            "The two values are swapped: give the functions in the order root_bytes, ring_bytes.",
            _as_if("root_bytes", lambda b, n: 2 * (n - 1) / n * b),
        ),
    ),
)


def seconds_case(name: str, worlds: Sequence[tuple[float, int, float, float]], seconds: float) -> Case:
    """Return a case of 2.8: (num_bytes, world_size, latency_s, bandwidth_Bps) for the times, and busbw of `seconds`."""
    calls: list[Call] = []
    for num_bytes, world_size, latency, bandwidth in worlds:
        calls += [
            ("ring_seconds", (num_bytes, world_size, latency, bandwidth)),
            ("tree_seconds", (num_bytes, world_size, latency, bandwidth)),
            ("bus_bandwidth", (num_bytes, seconds, world_size)),
        ]
    return calls_case(name, calls)


def _log(n: int) -> int:
    return (n - 1).bit_length()


SECONDS = Exercise(
    id="2.8",
    title="What it costs",
    functions=("ring_seconds", "tree_seconds", "bus_bandwidth"),
    driver=call_functions,
    oracle=counted,
    judge=judge,
    visible=(
        seconds_case("4 ranks, 1 GB over 10 GB/s", [(1e9, 4, 1e-5, 1e10)], 0.25),
        seconds_case("5 and 2 ranks, 1 KB, latency counts", [(1000, 5, 2e-5, 1e9), (1000, 2, 1e-4, 1e9)], 0.001),
    ),
    distributed=False,
    hints=(
        "A message costs its latency plus its bytes over the bandwidth. How many messages follow one another, how "
        "large?",
        "Ring: 2(N-1) steps, each with a chunk of B/N. Tree: ceil(log2 N) rounds up and as many down, each with "
        "the whole "
        "tensor. busbw: the bytes a rank must send in a ring, over the time.",
        "steps * (latency_s + bytes_per_step / bandwidth_Bps); and bus_bandwidth is num_bytes / seconds times "
        "2 * (world_size - 1) / world_size.",
    ),
    mistakes=(
        NOTHING,
        Mistake(
            "latency counted once",
            "ring_seconds counts the latency once: each of the 2(N-1) steps pays it.",
            _as_if("ring_seconds", lambda b, n, a, w: a + 2 * (n - 1) * b / n / w),
        ),
        Mistake(
            "whole tensor at each step",
            "ring_seconds sends the whole tensor in each step; a step carries one chunk, B/N.",
            _as_if("ring_seconds", lambda b, n, a, w: 2 * (n - 1) * (a + b / w)),
        ),
        Mistake(
            "one half of the ring only",
            "ring_seconds counts N-1 steps; reduce-scatter and all-gather each take N-1.",
            _as_if("ring_seconds", lambda b, n, a, w: (n - 1) * (a + b / n / w)),
        ),
        Mistake(
            "N steps",
            "ring_seconds counts N steps in each half; there are N-1.",
            _as_if("ring_seconds", lambda b, n, a, w: 2 * n * (a + b / n / w)),
        ),
        Mistake(
            "way up only",
            "tree_seconds counts the way up; the sum must come down again.",
            _as_if("tree_seconds", lambda b, n, a, w: _log(n) * (a + b / w)),
        ),
        Mistake(
            "no rounding up",
            "tree_seconds takes log2 N as it is; a tree has whole rounds: math.ceil(math.log2(N)).",
            _as_if("tree_seconds", lambda b, n, a, w: 2 * math.log2(n) * (a + b / w)),
        ),
        Mistake(
            "rounded down",
            "tree_seconds rounds log2 N down; with 5 ranks it takes 3 rounds, not 2.",
            _as_if("tree_seconds", lambda b, n, a, w: 2 * math.floor(math.log2(n)) * (a + b / w)),
        ),
        Mistake(
            "one step for each rank",
            "tree_seconds counts a step for each rank; in a tree the number of ranks that are done doubles in each "
            "round.",
            _as_if("tree_seconds", lambda b, n, a, w: 2 * (n - 1) * (a + b / w)),
        ),
        Mistake(
            "algbw instead of busbw",
            "bus_bandwidth is algbw, bytes over seconds: multiply it by 2(N-1)/N.",
            _as_if("bus_bandwidth", lambda b, s, n: b / s),
        ),
        Mistake(
            "half of busbw",
            "bus_bandwidth has the factor (N-1)/N of a reduce-scatter; an all-reduce has 2(N-1)/N.",
            _as_if("bus_bandwidth", lambda b, s, n: (n - 1) / n * b / s),
        ),
    ),
)
