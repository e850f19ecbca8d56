"""Wrong answers to overlap_gain, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
wrong = WRONG.wrong


COST = """
def overlapped_seconds(backward_s, num_bytes, num_buckets, world_size, latency_s, bandwidth_Bps):
    bucket = 2 * (world_size - 1) * (latency_s + num_bytes / num_buckets / world_size / bandwidth_Bps)
    return {formula}


def best_num_buckets(backward_s, num_bytes, world_size, latency_s, bandwidth_Bps, most=1000):
    return {best}
"""
BEST = (
    "min(range(1, most + 1), key=lambda k: overlapped_seconds(backward_s, num_bytes, k, world_size, latency_s, "
    "bandwidth_Bps))"
)


def cost(name: str, mistake: str, formula: str, best: str = BEST) -> None:
    wrong(name, mistake, COST.format(formula=formula, best=best))


RIGHT = "max(backward_s + bucket, backward_s / num_buckets + num_buckets * bucket)"
cost("one after the other", "no overlap", "backward_s + num_buckets * bucket")
cost("the longer of the two", "everything hidden", "max(backward_s, num_buckets * bucket)")
cost("the first bucket is there at once", "the network never waits", "max(backward_s + bucket, num_buckets * bucket)")
cost("only the last bucket counts", "only the case of a fast network", "backward_s + bucket")
cost("always the most", "not the best number", RIGHT, "most")
cost("always one", "not the best number", RIGHT, "1")
cost(
    "one latency for all buckets",
    "latency paid once",
    "(lambda latency: latency + max(backward_s + bucket - latency, backward_s / num_buckets + num_buckets * "
    "(bucket - latency)))(2 * (world_size - 1) * latency_s)",
)
cost("prints", "returns nothing", f"print({RIGHT})")
WRONG.changed(
    "all bytes in each bucket",
    "the whole tensor in each bucket",
    ("num_bytes / num_buckets / world_size", "num_bytes / world_size"),
)
WRONG.changed(
    "half a ring", "one half of the ring only", ("bucket = 2 * (world_size - 1)", "bucket = (world_size - 1)")
)
WRONG.changed(
    "a bucket is a message",
    "one message for a bucket",
    (
        "2 * (world_size - 1) * (latency_s + num_bytes / num_buckets / world_size / bandwidth_Bps)",
        "latency_s + num_bytes / num_buckets / bandwidth_Bps",
    ),
)
WRONG.changed(
    "one latency for a bucket",
    "one latency for an all_reduce",
    (
        "2 * (world_size - 1) * (latency_s + num_bytes / num_buckets / world_size / bandwidth_Bps)",
        "latency_s + 2 * (world_size - 1) * num_bytes / num_buckets / world_size / bandwidth_Bps",
    ),
)
WRONG.changed(
    "what is left after backward",
    "only what is exposed",
    ("num_buckets * bucket)", "num_buckets * bucket) - backward_s"),
)
WRONG.changed(
    "the least time",
    "a time for the number",
    ("min(range(1, most + 1), key=seconds)", "min(map(seconds, range(1, most + 1)))"),
)
WRONG.changed(
    "the largest of several",
    "not the smallest of several",
    ("key=seconds)", "key=lambda k: (round(seconds(k), 12), -k))"),
)
WRONG.changed("one bucket is none", "not the best number", ("range(1, most + 1)", "range(2, most + 1)"))
WRONG.changed("fewer than most", "not the best number", ("range(1, most + 1)", "range(1, most)"))
WRONG.changed(
    "all of the bucket in each step",
    "a whole bucket in each step",
    ("num_bytes / num_buckets / world_size / bandwidth_Bps", "num_bytes / num_buckets / bandwidth_Bps"),
)
WRONG.changed(
    "buckets counted from 0",
    "buckets ready one too early",
    (
        "return max(backward_s + bucket, backward_s / num_buckets + num_buckets * bucket)",
        (
            "end = 0.0\n"
            "    for i in range(num_buckets):\n"
            "        end = max(end, backward_s * i / num_buckets) + bucket\n"
            "    return end"
        ),
    ),
)
