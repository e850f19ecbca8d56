"""Where it pays; expected times are added up step by step."""

from __future__ import annotations

import math
from collections.abc import Sequence

from labkit.checks.blame import by_signs
from labkit.checks.case import Case
from labkit.checks.exercise import Exercise
from labkit.checks.formulas import Call, Counted, WrongFormula, calls_case, counting, hints_of, where_wrong
from labkit.exercises.gradient_compression.where_it_pays.driver import drive

World = tuple[float, float, int, float, float, float]
"""num_bytes, packet_bytes, world_size, latency_s, bandwidth_Bps, compress_s."""


def _all_reduce(num_bytes: float, ranks: int, latency: float, bandwidth: float) -> float:
    return math.fsum(latency + num_bytes / ranks / bandwidth for _half in range(2) for _ in range(1, ranks))


def _all_gather(packet: float, ranks: int, latency: float, bandwidth: float) -> float:
    return math.fsum(latency + packet / bandwidth for _ in range(1, ranks))


def _pays_below(num_bytes: float, packet: float, ranks: int, compress_s: float) -> float:
    saved = _all_reduce(num_bytes, ranks, 0.0, 1.0) - _all_gather(packet, ranks, 0.0, 1.0)
    if saved <= 0:
        return 0.0
    return saved / compress_s if compress_s > 0 else math.inf


COUNTED: Counted = {"all_reduce_seconds": _all_reduce, "all_gather_seconds": _all_gather, "pays_below": _pays_below}


DIVIDED = "divided by nothing"
WRONG = {
    "one half of the ring": WrongFormula(
        "all_reduce_seconds",
        lambda b, n, a, w: (n - 1) * (a + b / n / w),
        "all_reduce_seconds counts N-1 steps; a ring goes round twice, reduce-scatter and all-gather.",
    ),
    "the whole tensor in each step": WrongFormula(
        "all_reduce_seconds",
        lambda b, n, a, w: 2 * (n - 1) * (a + b / w),
        "all_reduce_seconds sends the whole tensor in every step; it is one N-th.",
    ),
    "latency of the all_reduce paid once": WrongFormula(
        "all_reduce_seconds",
        lambda b, n, a, w: a + 2 * (n - 1) * b / n / w,
        "all_reduce_seconds pays the latency once; every one of its 2(N-1) steps does.",
    ),
    "latency paid once": WrongFormula(
        "all_gather_seconds",
        lambda p, n, a, w: a + (n - 1) * p / w,
        "all_gather_seconds pays the latency once; every one of its N-1 steps does.",
    ),
    "the tensor passes once": WrongFormula(
        "all_reduce_seconds",
        lambda b, n, a, w: 2 * (n - 1) * a + b / w,
        "all_reduce_seconds sends the tensor once: 2(N-1) steps of one N-th each are nearly twice the tensor.",
    ),
    "one's own packet is sent to oneself": WrongFormula(
        "all_gather_seconds",
        lambda p, n, a, w: n * (a + p / w),
        "all_gather_seconds counts N packets: a rank has its own already, N-1 come over the link.",
    ),
    "packets as if they were reduced": WrongFormula(
        "pays_below",
        lambda b, p, n, c: 0.0 if b <= p else 2 * (n - 1) / n * (b - p) / c if c else math.inf,
        "pays_below takes 2(N-1)/N of the packet too. That is an all_reduce's share; gathered packets come N-1 times.",
    ),
    "upside down": WrongFormula(
        "pays_below",
        lambda b, p, n, c: c / (2 * (n - 1) / n * b - (n - 1) * p) if 2 / n * b != p else 0.0,
        "pays_below gives seconds per byte: bytes that are saved, over the seconds they cost.",
    ),
    "nothing saved for nothing": WrongFormula(
        "pays_below",
        lambda b, p, n, c: max(0.0, 2 * (n - 1) / n * b - (n - 1) * p) / c if c else math.inf,
        "Compressing may cost nothing and still never pay: look at the bytes first. Where none are saved, 0.0.",
    ),
    "a packet cut in N": WrongFormula(
        "all_gather_seconds",
        lambda p, n, a, w: (n - 1) * (a + p / n / w),
        "all_gather_seconds sends an N-th of a packet in each step; every rank needs every packet whole.",
    ),
    "the gather does not grow": WrongFormula(
        "all_gather_seconds",
        lambda p, n, a, w: a + p / w,
        "all_gather_seconds counts one packet: N-1 of them come over each link.",
    ),
    "bytes saved on paper": WrongFormula(
        "pays_below",
        lambda b, p, n, c: 0.0 if b <= p else (b - p) / c if c else math.inf,
        "pays_below compares the sizes of gradient and packet. Compare what passes a link: 2(N-1)/N times the "
        "one, N-1 "
        "times the other.",
    ),
    "a negative bandwidth": WrongFormula(
        "pays_below",
        lambda b, p, n, c: (2 * (n - 1) / n * b - (n - 1) * p) / c if c else math.inf,
        "Where gathering sends more than the all_reduce, no bandwidth makes it pay: return 0.0.",
    ),
}


def cost_case(name: str, worlds: Sequence[World]) -> Case:
    """Return a case: every function in each world."""
    calls: list[Call] = []
    for num_bytes, packet, ranks, latency, bandwidth, compress_s in worlds:
        calls += [
            ("all_reduce_seconds", (num_bytes, ranks, latency, bandwidth)),
            ("all_gather_seconds", (packet, ranks, latency, bandwidth)),
            ("pays_below", (num_bytes, packet, ranks, compress_s)),
        ]
    return calls_case(name, calls)


EXERCISE = Exercise(
    id="where_it_pays",
    functions=("all_reduce_seconds", "all_gather_seconds", "pays_below"),
    driver=drive,
    oracle=counting(COUNTED),
    find=where_wrong(COUNTED, WRONG),
    visible=(
        cost_case("4 ranks, a packet of 2 %", [(1e8, 2e6, 4, 1e-5, 1.25e9, 0.002)]),
        cost_case(
            "64 ranks: what pays and what never does",
            [(1e8, 2e6, 64, 1e-5, 1e10, 0.001), (1e8, 2.5e7, 64, 0.0, 1e9, 0.001)],
        ),
        cost_case(
            "compressing costs nothing, on 2 ranks and on 64",
            [(1000.0, 100.0, 2, 1e-4, 1e6, 0.0), (1e6, 1e6, 64, 1e-4, 1e9, 0.0)],
        ),
    ),
    distributed=False,
    hints=(
        "How many steps has each ring, and how many bytes pass one link in each step?",
        "all_reduce: 2(N-1) steps of B/N bytes. all_gather: N-1 steps of a whole packet. pays_below: the bytes "
        "that a link "
        "is spared, over compress_s; at the border the time they would take is what compressing takes.",
        "saved = 2 * (n - 1) / n * num_bytes - (n - 1) * packet_bytes; 0.0 if saved <= 0; math.inf without a "
        "cost; else "
        "saved / compress_s.",
    ),
    mistakes=hints_of(WRONG) | {DIVIDED: "With compress_s == 0 it always pays, if bytes are saved: return math.inf."},
    blame=by_signs({DIVIDED: ("ZeroDivisionError",)}),
    certain=frozenset({DIVIDED}),
)
