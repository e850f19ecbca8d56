"""Wrong answers to ring_cost, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
wrong = WRONG.wrong


def _seconds(
    ring: str = "2 * (n - 1) * (a + b / n / w)",
    tree: str = "2 * math.ceil(math.log2(n)) * (a + b / w)",
    busbw: str = "2 * (n - 1) / n * b / s",
) -> str:
    return f"""
def ring_seconds(num_bytes, world_size, latency_s, bandwidth_Bps):
    b, n, a, w = num_bytes, world_size, latency_s, bandwidth_Bps
    return {ring}


def tree_seconds(num_bytes, world_size, latency_s, bandwidth_Bps):
    b, n, a, w = num_bytes, world_size, latency_s, bandwidth_Bps
    return {tree}


def bus_bandwidth(num_bytes, seconds, world_size):
    b, s, n = num_bytes, seconds, world_size
    return {busbw}
"""


wrong("latency counted once", "latency counted once", _seconds(ring="a + 2 * (n - 1) * b / n / w"))
wrong("whole tensor at each step", "whole tensor at each step", _seconds(ring="2 * (n - 1) * (a + b / w)"))
wrong("the limit for many ranks", "twice the tensor", _seconds(ring="2 * ((n - 1) * a + b / w)"))
wrong("half a ring", "one half of the ring only", _seconds(ring="(n - 1) * (a + b / n / w)"))
wrong("log2 as it is", "no rounding up", _seconds(tree="2 * math.log2(n) * (a + b / w)"))
wrong("only up the tree", "way up only", _seconds(tree="math.ceil(math.log2(n)) * (a + b / w)"))
wrong("algbw", "algbw instead of busbw", _seconds(busbw="b / s"))
wrong("busbw of a reduce-scatter", "half of busbw", _seconds(busbw="(n - 1) / n * b / s"))
wrong("N steps a half", "N steps", _seconds(ring="2 * n * (a + b / n / w)"))
wrong("rounds cut off", "rounded down", _seconds(tree="2 * int(math.log2(n)) * (a + b / w)"))
wrong("a tree like a ring", "one step for each rank", _seconds(tree="2 * (n - 1) * (a + b / w)"))
wrong("prints", "returns nothing", _seconds(busbw="print(2 * (n - 1) / n * b / s)"))
WRONG.changed(
    "bit_length for the rounds",
    "a round too many for powers of two",
    ("math.ceil(math.log2(world_size))", "world_size.bit_length()"),
)
WRONG.changed(
    "a chunk in each message of the tree",
    "a chunk where the tree sends all",
    ("num_bytes / bandwidth_Bps)", "num_bytes / world_size / bandwidth_Bps)"),
)
WRONG.changed(
    "half of it in each round of the tree",
    "a chunk where the tree sends all",
    (
        "2 * math.ceil(math.log2(world_size)) * (latency_s + num_bytes / bandwidth_Bps)",
        "sum(2 * (latency_s + num_bytes / 2**r / bandwidth_Bps) for r in range(math.ceil(math.log2(world_size))))",
    ),
)
WRONG.changed(
    "busbw of all links",
    "all links added up",
    ("2 * (world_size - 1) / world_size * num_bytes / seconds", "2 * (world_size - 1) * num_bytes / seconds"),
)
WRONG.changed(
    "both directions one after the other",
    "sent and received add up",
    ("num_bytes / (world_size * bandwidth_Bps)", "2 * num_bytes / (world_size * bandwidth_Bps)"),
)
WRONG.changed("the natural logarithm", "rounded down", ("math.log2(world_size)", "math.log(world_size)"))
WRONG.changed(
    "a tree whose bytes flow on",
    "bytes paid once each way",
    (
        "2 * math.ceil(math.log2(world_size)) * (latency_s + num_bytes / bandwidth_Bps)",
        "2 * (math.ceil(math.log2(world_size)) * latency_s + num_bytes / bandwidth_Bps)",
    ),
)
WRONG.changed(
    "busbw the wrong way round",
    "divided by what a link carries",
    (
        "return 2 * (world_size - 1) / world_size * num_bytes / seconds",
        "return num_bytes / seconds / (2 * (world_size - 1) / world_size)",
    ),
)
WRONG.changed(
    "bits of a chunk",
    "bits for bytes",
    ("num_bytes / (world_size * bandwidth_Bps)", "8 * num_bytes / (world_size * bandwidth_Bps)"),
)
