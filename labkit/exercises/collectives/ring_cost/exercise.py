"""How long it takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from labkit.checks.case import Case
from labkit.checks.declared import Mistake
from labkit.checks.formulas import Call, Counted, calls_case, formulas
from labkit.checks.how_off import one_at_a_time
from labkit.exercises.collectives.ring_cost.driver import drive
from labkit.exercises.sums_over_ranks.costs import bus_bandwidth, ring_seconds, tree_seconds
from labkit.exercises.sums_over_ranks.rounds import doublings

RIGHT: Counted = {"ring_seconds": ring_seconds, "tree_seconds": tree_seconds, "bus_bandwidth": bus_bandwidth}


def seconds_case(name: str, worlds: Sequence[tuple[float, int, float, float]], seconds: float) -> Case:
    """Return a case of ring_cost: (num_bytes, world_size, latency_s, bandwidth_Bps) for times, busbw of `seconds`."""
    calls: list[Call] = []
    for num_bytes, world_size, latency, bandwidth in worlds:
        calls += [
            ("ring_seconds", (num_bytes, world_size, latency, bandwidth)),
            ("tree_seconds", (num_bytes, world_size, latency, bandwidth)),
            ("bus_bandwidth", (num_bytes, seconds, world_size)),
        ]
    return calls_case(name, calls)


def _doubled_case(name: str, num_bytes: float, world_size: int, latency: float, bandwidth: float, busy: float) -> Case:
    calls: list[Call] = [("ring_seconds", each) for each in one_at_a_time(num_bytes, world_size, latency, bandwidth)]
    calls += [("tree_seconds", args) for _, args in calls]
    return calls_case(name, calls + [("bus_bandwidth", each) for each in one_at_a_time(num_bytes, busy, world_size)])


def _halved(first: int) -> Callable[[float, int, float, float], float]:
    """Return the time of a tree whose message is halved in each round, from B / 2**first on."""
    return lambda b, n, a, w: sum(2 * (a + b / 2 ** (first + turn) / w) for turn in range(doublings(n)))


EXERCISE = formulas(
    id="ring_cost",
    functions=("ring_seconds", "tree_seconds", "bus_bandwidth"),
    driver=drive,
    counted=RIGHT,
    visible=(
        _doubled_case("4 ranks, 1 GB over 10 GB/s; then each number doubled", 1e9, 4, 1e-5, 1e10, 0.25),
        seconds_case("5 and 2 ranks, 1 KB, latency counts", [(1001, 5, 2e-5, 1e9), (1001, 2, 1e-4, 1e9)], 0.001),
    ),
    hints=(
        "A message costs its latency plus its bytes over the bandwidth. How many messages follow one another, how "
        "large?",
        "Ring: 2(N-1) steps, each with a chunk of B/N. Tree: ceil(log2 N) rounds up and as many down, each with the "
        "whole tensor. busbw: the bytes a rank must send in a ring, over the time.",
        "steps * (latency_s + bytes_per_step / bandwidth_Bps); and bus_bandwidth is num_bytes / seconds times "
        "2 * (world_size - 1) / world_size.",
    ),
    mistakes=(
        Mistake("latency counted once", "ring_seconds counts the latency once: each of the 2(N-1) steps pays it.",
                {"ring_seconds": lambda b, n, a, w: a + 2 * (n - 1) * b / n / w}),
        Mistake("whole tensor at each step",
                "ring_seconds sends the whole tensor in each step; a step carries one chunk, B/N.",
                {"ring_seconds": lambda b, n, a, w: 2 * (n - 1) * (a + b / w)}),
        Mistake("twice the tensor",
                "ring_seconds sends 2B from each rank; that is the limit for many ranks. N ranks send 2(N-1)/N times "
                "B each.", {"ring_seconds": lambda b, n, a, w: 2 * ((n - 1) * a + b / w)}),
        Mistake("one half of the ring only",
                "ring_seconds counts N-1 steps; reduce-scatter and all-gather each take N-1.",
                {"ring_seconds": lambda b, n, a, w: (n - 1) * (a + b / n / w)}),
        Mistake("N steps", "ring_seconds counts N steps in each half; there are N-1.",
                {"ring_seconds": lambda b, n, a, w: 2 * n * (a + b / n / w)}),
        Mistake("way up only", "tree_seconds counts the way up; the sum must come down again.",
                {"tree_seconds": lambda b, n, a, w: doublings(n) * (a + b / w)}),
        Mistake("no rounding up",
                "tree_seconds does not round log2 N; a tree has whole rounds: math.ceil(math.log2(N)).",
                {"tree_seconds": lambda b, n, a, w: 2 * math.log2(n) * (a + b / w)}),
        Mistake("rounded down",
                "tree_seconds has too few rounds where N is no power of two: 5 ranks take 3, not 2. Round up, and take "
                "the logarithm to base 2: math.ceil(math.log2(N)); math.log is the natural one.",
                {"tree_seconds": lambda b, n, a, w: 2 * math.floor(math.log2(n)) * (a + b / w)}),
        Mistake("a round too many for powers of two",
                "tree_seconds counts a round too many where N is a power of two: 4 ranks need 2 rounds, and bit_length "
                "of 4 is 3.",
                {"tree_seconds": lambda b, n, a, w: 2 * int(n).bit_length() * (a + b / w)}),
        Mistake("one step for each rank",
                "tree_seconds counts a step for each rank; in a tree the number of ranks that are done doubles in "
                "each round.", {"tree_seconds": lambda b, n, a, w: 2 * (n - 1) * (a + b / w)}),
        Mistake("bytes paid once each way",
                "tree_seconds pays the latency in every round, and the bytes only once up and once down. A round waits "
                "for the one before, and in each of them the whole tensor travels.",
                {"tree_seconds": lambda b, n, a, w: 2 * (doublings(n) * a + b / w)}),
        Mistake("divided by what a link carries",
                "bus_bandwidth divides by 2(N-1)/N. Each link of a ring carries that many times the tensor, so its "
                "rate is algbw times it.", {"bus_bandwidth": lambda b, s, n: b / s / (2 * (n - 1) / n)}),
        Mistake("bits for bytes",
                "ring_seconds counts bits: num_bytes are bytes, and bandwidth_Bps is in bytes per second.",
                {"ring_seconds": lambda b, n, a, w: 2 * (n - 1) * (a + 8 * b / n / w)}),
        Mistake("a chunk where the tree sends all",
                "tree_seconds cuts the tensor. In a tree every message holds all of it: nothing is halved, and no "
                "chunks are made.",
                {"tree_seconds": (lambda b, n, a, w: 2 * doublings(n) * (a + b / n / w), _halved(0), _halved(1))}),
        Mistake("all links added up",
                "bus_bandwidth is that of one link: divide the bytes of all links by the number of ranks.",
                {"bus_bandwidth": lambda b, s, n: 2 * (n - 1) * b / s}),
        Mistake("sent and received add up",
                "ring_seconds counts what a rank sends and what it receives one after the other. A link carries both "
                "directions at the same time.",
                {"ring_seconds": (lambda b, n, a, w: 2 * (n - 1) * (a + 2 * b / n / w),
                                  lambda b, n, a, w: 4 * (n - 1) * (a + b / n / w))}),
        Mistake("algbw instead of busbw", "bus_bandwidth is algbw, bytes over seconds: multiply it by 2(N-1)/N.",
                {"bus_bandwidth": lambda b, s, n: b / s}),
        Mistake("half of busbw",
                "bus_bandwidth has the factor (N-1)/N of a reduce-scatter; an all-reduce has 2(N-1)/N.",
                {"bus_bandwidth": lambda b, s, n: (n - 1) / n * b / s}),
    ),
)  # fmt: skip
