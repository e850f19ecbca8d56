"""Wrong answers to where_it_pays, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from tests.exercises.wrong_answer import WrongAnswers

WRONG = WrongAnswers(__name__)
changed = WRONG.changed


REDUCE = "return 2 * (world_size - 1) * (latency_s + num_bytes / world_size / bandwidth_Bps)"
GATHERED = "return (world_size - 1) * (latency_s + packet_bytes / bandwidth_Bps)"
SAVED = "saved = 2 * (world_size - 1) / world_size * num_bytes - (world_size - 1) * packet_bytes"
changed("once round", "one half of the ring", (REDUCE, REDUCE.replace("2 * ", "")))
changed("whole tensors", "the whole tensor in each step", (REDUCE, REDUCE.replace(" / world_size /", " /")))
changed(
    "one latency",
    "latency paid once",
    (GATHERED, "return latency_s + (world_size - 1) * packet_bytes / bandwidth_Bps"),
)
changed(
    "a packet in pieces",
    "a packet cut in N",
    (GATHERED, GATHERED.replace("packet_bytes /", "packet_bytes / world_size /")),
)
changed("one packet", "the gather does not grow", (GATHERED, GATHERED.replace("(world_size - 1) * ", "")))
changed("sizes of packets", "bytes saved on paper", (SAVED, "saved = num_bytes - packet_bytes"))
changed(
    "the tensor once",
    "the tensor passes once",
    (REDUCE, "return 2 * (world_size - 1) * latency_s + num_bytes / bandwidth_Bps"),
)
changed(
    "N packets",
    "one's own packet is sent to oneself",
    (GATHERED, GATHERED.replace("(world_size - 1)", "world_size")),
)
changed(
    "the packet reduced",
    "packets as if they were reduced",
    (SAVED, "saved = 2 * (world_size - 1) / world_size * (num_bytes - packet_bytes)"),
)
changed(
    "seconds per byte",
    "upside down",
    ("    if saved <= 0:\n        return 0.0\n", ""),
    ("saved / compress_s if compress_s else math.inf", "compress_s / saved"),
)
changed(
    "free is always worth it",
    "nothing saved for nothing",
    ("if saved <= 0:", "if saved <= 0 < compress_s:"),
)
changed("below zero", "a negative bandwidth", ("if saved <= 0:", "if False:"))
changed("divides by zero", "divided by nothing", (" if compress_s else math.inf", ""))
changed("prints", "returns nothing", (GATHERED, GATHERED.replace("return ", "print(") + ")"))
