"""Transfers that a driver begins in one part of the wire and ends in the next, and what may go wrong between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from labkit.checks.case import Case
from labkit.checks.cut_wire import between_barriers, waited_at_once
from labkit.checks.declared import Mistake
from labkit.checks.finding import Find, Finding
from labkit.checks.wire import CollectiveCall, Wire


@dataclass(frozen=True)
class Started:
    """A function that begins a transfer and returns what ends it.

    Attributes:
        what: Its name.
        part: In which part of the wire, between the driver's barriers, it begins; it ends in the next one.
        most: How many collectives it may call.
    """

    what: str
    part: int
    most: int = 1


LATE, BLOCKS, MANY = "begins in finish", "waits at once", "one collective each"
STARTED = (
    Mistake(LATE, "Call the collective with async_op=True in the function that begins, and only wait in the one it "
            "returns."),
    Mistake(BLOCKS, "Pass async_op=True, and call wait() in the function that you return."),
    Mistake(MANY, "Lay the parts of all tensors into one buffer, and send that: each collective costs a latency."),
)  # fmt: skip


def transfers(wire: Wire, started: Sequence[Started], rank: int) -> Iterator[tuple[Started, list[CollectiveCall]]]:
    """Yield what each of them called on a rank."""
    parts = between_barriers(wire, rank)
    yield from ((each, [*parts[each.part], *parts[each.part + 1]]) for each in started)


def overlapping(started: Sequence[Started]) -> Find:
    """Return the rule that each begins at once, blocks nobody and calls no more collectives than it may."""

    def find(case: Case, got: object, wire: Wire) -> Iterator[Finding]:
        for rank in range(case.world_size):
            parts = between_barriers(wire, rank)
            if len(parts) != 2 + 2 * len(started):
                yield Finding("", "This check marks the wire with barriers of its own; call none in yours.", rank=rank)
                return
            for each in started:
                begun, ended = parts[each.part], parts[each.part + 1]
                if not begun and ended:
                    text = f"{each.what} starts nothing: rank {rank} communicates only when its function is called."
                    yield Finding(LATE, text, rank=rank)
                if len(begun) + len(ended) > each.most:
                    text = f"In {each.what} rank {rank} calls {len(begun) + len(ended)} collectives."
                    yield Finding(MANY, text, f"at most {each.most}", rank=rank)
                if any(waited_at_once(call) for call in begun):
                    text = f"{each.what} returns on rank {rank} when all is over: nothing can overlap."
                    yield Finding(BLOCKS, text, rank=rank)

    return find
