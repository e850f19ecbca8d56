"""Whether buffers are left alone while they are in flight."""

from __future__ import annotations

from collections.abc import Iterator

from labkit.auditing.catalogue import rule
from labkit.auditing.finding import Finding
from labkit.auditing.seen import Seen
from labkit.cells import place

CHANGED = rule(
    "changed-in-flight",
    "a buffer is left alone until the call it was given to is complete",
    seen="every operator's arguments, against the buffers of calls that nobody has waited for",
    why="What is sent or reduced is a mixture of old and new values, and another one in every run.",
    todo="Call work.wait() first, or write into another buffer.",
    lesson="03",
)
USED = rule(
    "used-before-wait",
    "a result is used after wait()",
    seen="the same",
    why="The program computes with what was in the buffer before.",
    todo="Call work.wait() before the result is used.",
    lesson="03",
)


def look(seen: Seen) -> Iterator[Finding]:
    """Yield buffers that were written or read too early."""
    told: set[str] = set()
    for rank, step, kind, call, called, source in seen.problems:
        name = CHANGED if kind == "changed_in_flight" else USED
        if name in told:
            continue
        told.add(name)
        does = "writes into" if name == CHANGED else "reads"
        at = f" ({place(called)})" if called else ""
        text = f"Rank {rank} {does} a buffer of its {call}{at} before anybody waited for it."
        todo = "Wait first: work.wait()." if name == USED else "Wait first, or write into a buffer of its own."
        yield Finding(name, "wrong", text, todo, rank, step, source or called, "", {"call": call, "called": called})
