"""What a communication hook may put on the wire, and when it may wait."""

from __future__ import annotations

from collections.abc import Iterator

from labkit.checks.case import Case
from labkit.checks.finding import Finding
from labkit.checks.values import flag, integer, integers, listed, record, text
from labkit.checks.wire import CollectiveCall, Wire
from labkit.exercises.gradient_compression.unpacked import ROUNDING

_OF_EIGHT = 8


def wrong_on_the_wire(case: Case, wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong with what travelled: the kind of collective, its bytes, or a wait inside the hook."""
    for rank in integers(case.about, "ranks"):
        addable = text(record(case.inputs[rank], "compressor"), "kind") == ROUNDING
        calls = [call for call in wire.collectives if call.rank == rank]
        work = [call for call in calls if call.kind != "barrier"]
        if addable and any(call.kind.startswith("all_gather") for call in work):
            yield Finding("gathers what can be added", f"Rank {rank} gathers packets that may be added.")
        if not addable and any(call.kind in ("all_reduce", "reduce_scatter", "reduce") for call in work):
            yield Finding("added what cannot be added", f"Rank {rank} all-reduces packets that cannot be added.")
        most = _most_bytes(case, rank)
        sent = sum(call.bytes for call in work) + wire.bytes_sent(rank)
        if sent > most:
            message = f"Rank {rank} moved {sent} bytes; its packets and those it gathers have {most}."
            yield Finding("more than packets travels", message, f"at most {most} bytes", f"{sent} bytes")
        if flag(case.about, "overlap"):
            yield from _waits(calls, rank)


def packet_sizes(case: Case, rank: int) -> list[int]:
    """Return the bytes of each packet of a rank: two parts, of which one is a single number."""
    about = record(case.inputs[rank], "compressor")
    sizes = [buffer.numel() for buffers in listed(case.inputs[rank], "steps") for buffer in buffers]
    addable = text(about, "kind") == ROUNDING
    kept = [-(-size // integer(about, "every")) if addable else integer(about, "length") for size in sizes]
    return [_OF_EIGHT * (1 + each) for each in kept]


def _most_bytes(case: Case, rank: int) -> int:
    """Return the bytes of all packets; gathered ones count once for each rank, as a recording counts them."""
    addable = text(record(case.inputs[rank], "compressor"), "kind") == ROUNDING
    return sum(packet_sizes(case, rank)) * (1 if addable else len(integers(case.about, "ranks")))


def _waits(calls: list[CollectiveCall], rank: int) -> Iterator[Finding]:
    """Yield a finding if a collective was waited for before the barrier behind its hook."""
    barriers = sorted(call.sequence for call in calls if call.kind == "barrier")
    for call in sorted(calls, key=lambda call: call.sequence):
        behind = next((each for each in barriers if each > call.sequence), None)
        if call.kind != "barrier" and call.waited is not None and behind is not None and call.waited <= behind:
            yield Finding("waits inside the hook", f"Rank {rank} waits for its {call.kind} before the hook returns.")
