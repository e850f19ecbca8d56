"""What overlap is worth: expected times are counted event by event, not taken from a formula."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

from labkit.checks.case import Case, Got, Value, Values
from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.checks.formulas import RETURNS_NOTHING
from labkit.checks.how_off import Called, how_off, is_number, one_at_a_time
from labkit.checks.values import listed
from labkit.checks.wire import Wire
from labkit.exercises.ddp.overlap_gain.driver import drive
from labkit.plans.buckets import Link, sent
from labkit.words import number

World = tuple[float, float, int, float, float]
"""backward_s, num_bytes, world_size, latency_s, bandwidth_Bps."""
_PARAMETERS = ("backward_s", "num_bytes", "num_buckets", "world_size", "latency_s", "bandwidth_Bps")


def cost_case(name: str, worlds: Sequence[World], counts: Sequence[int], most: int = 64) -> Case:
    """Return a case: the time with each number of buckets, and the best number up to `most`, in each world."""
    calls: list[Value] = []
    for backward, size, ranks, latency, bandwidth in worlds:
        for count in counts:
            calls.append({"function": "overlapped_seconds", "args": [backward, size, count, ranks, latency, bandwidth]})
        calls.append({"function": "best_num_buckets", "args": [backward, size, ranks, latency, bandwidth, most]})
    return Case(name, 1, ({"calls": calls},))


def _doubled_case(name: str, *args: float) -> Case:
    """Return a case of overlapped_seconds: with these arguments, and with each of them doubled."""
    calls: list[Value] = [{"function": "overlapped_seconds", "args": list(each)} for each in one_at_a_time(*args)]
    return Case(name, 1, ({"calls": calls},))


def event_by_event(
    backward: float, num_bytes: float, count: int, ranks: int, latency: float, bandwidth: float
) -> float:
    """Return when the last of `count` equal buckets is reduced, stepping through them one by one."""
    buckets = sent([num_bytes / count] * count, [[index] for index in reversed(range(count))],
                   Link(backward, ranks, latency, bandwidth))  # fmt: skip
    return buckets[-1].end


def _calls(case: Case) -> list[tuple[str, list[Any]]]:
    return [(call["function"], call["args"]) for call in listed(case.inputs[0], "calls")]


def _times(args: list[Any]) -> dict[int, float]:
    backward, size, ranks, latency, bandwidth, most = args
    return {k: event_by_event(backward, size, k, ranks, latency, bandwidth) for k in range(1, most + 1)}


def expected(case: Case) -> list[Values]:
    """Return what each call must give (the oracle)."""
    values: list[Value] = []
    for function, args in _calls(case):
        if function == "overlapped_seconds":
            values.append(event_by_event(*args))
        else:
            times = _times(args)
            values.append(min(times, key=lambda k: (times[k], k)))
    return [{"values": values}]


def _wrong(case: Case, got: Got) -> list[tuple[str, list[Any], Value, Value]]:
    came = got[0].get("values") if isinstance(got, tuple) else None
    if not isinstance(came, list):
        return [("overlapped_seconds", [], None, None)]
    found = []
    for (function, args), right, mine in zip(
        _calls(case), cast(list[Value], expected(case)[0]["values"]), came, strict=True
    ):
        if function == "best_num_buckets" and type(mine) is int and 1 <= mine <= args[-1]:
            times = _times(args)
            # What is equally good up to rounding is right too; on one rank all are equal to the last digit.
            good = mine == right if args[2] == 1 else times[mine] <= min(times.values()) * (1 + 1e-9)
        else:
            good = function == "overlapped_seconds" and is_number(mine) and math.isclose(mine, cast(float, right))
        if not good:
            found.append((function, args, right, mine))
    return found


def wrong_times(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield each call that gave something else than stepping through the buckets gives."""
    timed = [
        Called(args, came, event_by_event(*args))
        for (function, args), came in zip(_calls(case), listed(got[0], "values"), strict=True)
        if function == "overlapped_seconds"
    ]
    for function, args, right, mine in _wrong(case, got):
        call = f"{function}({', '.join(map(number, args))})"
        came = number(mine) if isinstance(mine, int | float) else f"{mine!r:.40}"
        named = any(each.marks(case, got, wire) for each in MISTAKES)
        off = how_off(_PARAMETERS, timed) if function == "overlapped_seconds" and not named else ""
        yield Finding("", f"{call} gave {came}, expected {number(right)}. {off}".strip(), number(right), came)


def _as_if(wrong: Callable[..., float]) -> Any:
    def seen(case: Case, got: Got, wire: Wire) -> bool:
        mine = [entry for entry in _wrong(case, got) if entry[0] == "overlapped_seconds" and entry[1]]
        return bool(mine) and all(is_number(came) and math.isclose(came, wrong(*args)) for _, args, _, came in mine)

    return seen


def _ring(size: float, k: int, n: int, a: float, w: float) -> float:
    return Link(0.0, n, a, w).all_reduce_s(size / k)


def _end(backward: float, count: int, bucket: float) -> float:
    """Return when the last of `count` buckets is reduced, each of which travels for so long."""
    return max(backward + bucket, backward / count + count * bucket)


def _latency_paid_once(t: float, b: float, k: int, n: int, a: float, w: float) -> float:
    return 2 * (n - 1) * a + max(t + _ring(b, k, n, 0, w), t / k + k * _ring(b, k, n, 0, w))


def _counted_from_0(t: float, b: float, k: int, n: int, a: float, w: float) -> float:
    """Return when the last bucket is reduced if the first is ready at once, and each t/k too early."""
    bucket = _ring(b, k, n, a, w)
    return max(t * (k - 1) / k, (k - 1) * bucket) + bucket


def _only_the_best(case: Case, got: Got, wire: Wire) -> bool:
    wrong = _wrong(case, got)
    return {function for function, *_ in wrong} == {"best_num_buckets"} and all(type(came) is int for *_, came in wrong)


def _gives_a_time(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether best_num_buckets gives the least time itself."""
    wrong = _wrong(case, got)
    return {function for function, *_ in wrong} == {"best_num_buckets"} and all(
        isinstance(came, float) and math.isclose(came, min(_times(args).values())) for _, args, _, came in wrong
    )


def _not_the_smallest(case: Case, got: Got, wire: Wire) -> bool:
    wrong = _wrong(case, got)
    return bool(wrong) and all(args and function == "best_num_buckets" and args[2] == 1 for function, args, *_ in wrong)


def _nothing(case: Case, got: Got, wire: Wire) -> bool:
    return isinstance(got, tuple) and any(came is None for *_, came in _wrong(case, got))


MISTAKES = (
    replace(RETURNS_NOTHING, seen=_nothing),
    Mistake("no overlap",
            "This adds all of the communication to backward, but what runs while backward computes is hidden.",
            seen=_as_if(lambda t, b, k, n, a, w: t + k * _ring(b, k, n, a, w))),
    Mistake("the network never waits", "The first bucket is not ready at the start: it is ready after backward/k.",
            seen=_as_if(lambda t, b, k, n, a, w: max(t + _ring(b, k, n, a, w), k * _ring(b, k, n, a, w)))),
    Mistake("everything hidden",
            "The last bucket is ready only when backward ends; its all_reduce has nothing to hide behind.",
            seen=_as_if(lambda t, b, k, n, a, w: max(t, k * _ring(b, k, n, a, w)))),
    Mistake("only the case of a fast network",
            "If an all_reduce takes longer than the next bucket needs to be ready, they queue: k of them follow one "
            "another after the first is ready.", seen=_as_if(lambda t, b, k, n, a, w: t + _ring(b, k, n, a, w))),
    Mistake("latency paid once", "Every bucket pays its latency: 2(N-1) of them for each all_reduce.",
            seen=_as_if(_latency_paid_once)),
    Mistake("one latency for an all_reduce",
            "Each step of the ring is a message and pays a latency: 2(N-1) of them in an all_reduce.",
            seen=_as_if(lambda t, b, k, n, a, w: _end(t, k, a + _ring(b, k, n, 0, w)))),
    Mistake("the whole tensor in each bucket",
            "Each bucket travels with all bytes: it holds num_bytes / num_buckets of them.",
            seen=_as_if(lambda t, b, k, n, a, w: _end(t, k, _ring(b, 1, n, a, w)))),
    Mistake("one half of the ring only",
            "A bucket's all_reduce has two halves, reduce-scatter and all-gather, of N-1 steps each.",
            seen=_as_if(lambda t, b, k, n, a, w: _end(t, k, _ring(b, k, n, a, w) / 2))),
    Mistake("one message for a bucket",
            "A bucket costs more than one message of its bytes: a ring all_reduce has 2(N-1) steps, each with a "
            "latency and an N-th of the bucket.", seen=_as_if(lambda t, b, k, n, a, w: _end(t, k, a + b / k / w))),
    Mistake("a whole bucket in each step",
            "Each of the ring's 2(N-1) steps carries an N-th of the bucket, not all of it.",
            seen=_as_if(lambda t, b, k, n, a, w: _end(t, k, 2 * (n - 1) * (a + b / k / w)))),
    Mistake("buckets ready one too early",
            "The buckets are numbered from 1: the first is ready after backward/k, and the last, number k, when "
            "backward ends. These times count from 0.",
            seen=_as_if(_counted_from_0)),
    Mistake("only what is exposed",
            "This is the time after backward alone. The time from the beginning of backward is asked for.",
            seen=_as_if(lambda t, b, k, n, a, w: _end(t, k, _ring(b, k, n, a, w)) - t)),
    Mistake("a time for the number",
            "best_num_buckets returns a number of buckets, not the time that it takes: min(..., key=...).",
            seen=_gives_a_time),
    Mistake("not the smallest of several",
            "Of several numbers of buckets that take the same time, return the smallest.", seen=_not_the_smallest),
    Mistake("not the best number",
            "The time is right, but another number of buckets gives less: compare all from 1 to most.",
            seen=_only_the_best),
)  # fmt: skip

EXERCISE = declared(
    id="overlap_gain",
    functions=("overlapped_seconds", "best_num_buckets"),
    driver=drive,
    oracle=expected,
    visible=(
        _doubled_case("compute takes longer, 2 buckets; then each number doubled", 0.30, 1e8, 2, 8, 1e-5, 1e10),
        _doubled_case("the network takes longer, 4 buckets; then each number doubled", 0.004, 1e8, 4, 8, 1e-4, 1e10),
        cost_case("8 ranks, compute takes longer", [(0.030, 1e8, 8, 1e-5, 1e10)], [1, 2, 5]),
        cost_case("8 ranks, the network takes longer", [(0.005, 1e8, 8, 1e-5, 1e10)], [1, 4]),
        cost_case("4 ranks, latency counts", [(0.001, 1e5, 4, 1e-4, 1e9)], [1, 3, 10]),
        cost_case("one rank: nothing travels", [(0.5, 1e5, 1, 1e-4, 1e9)], [1, 4]),
    ),
    distributed=False,
    hints=(
        "Draw two rows, backward and network, with three buckets: once with short all_reduces, once with long ones. "
        "What determines the end in each case?",
        "With c the time of one bucket's all_reduce: either the network is always done before the next bucket is "
        "ready, and the end is backward + c; or it never rests after the first bucket, and the end is backward/k + k "
        "c. The larger of the two is right. The best k: try all.",
        "max(backward_s + c, backward_s / k + k * c); min(range(1, most + 1), key=...)",
    ),
    looks=(wrong_times,),
    mistakes=MISTAKES,
)
