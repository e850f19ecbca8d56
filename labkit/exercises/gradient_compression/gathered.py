"""Mistakes that any exercise can meet in which ranks gather packets."""

from __future__ import annotations

TOO_EARLY = "unpacked too early"

SIGNS = {TOO_EARLY: ("before it had come",)}
"""What a window says that is unpacked before its place has come (see `stand_ins.Window`)."""

MISTAKES = {
    TOO_EARLY: (
        "A part was unpacked before it had arrived. With async_op=True, all_gather only begins: wait for the work of "
        "every part (in a hook: collect_all of all futures) before you unpack."
    ),
    "one buffer for all ranks": (
        "All ranks' packets are the same: [tensor] * N is N times the same tensor. Make a new one for each: "
        "[torch.empty_like(part) for _ in range(N)]."
    ),
    "divided twice": "Divided by the number of ranks twice.",
}
