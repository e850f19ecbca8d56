"""What a communication hook may put on the wire, and when it may wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from torch import Tensor

from labkit.checks.case import Case
from labkit.checks.wire import CollectiveCall, Wire
from labkit.exercises.gradient_compression.findings import Finding

_OF_EIGHT = 8


def wrong_on_the_wire(case: Case, wire: Wire) -> Finding | None:
    """Return what is wrong with what travelled: the kind of collective, its bytes, or a wait inside the hook."""
    ranks = cast(list[int], case.about["ranks"])
    about = cast(Mapping[str, Any], case.inputs[ranks[0]]["compressor"])
    addable = about["kind"] == "rounding"
    for rank in ranks:
        calls = [call for call in wire.collectives if call.rank == rank]
        work = [call for call in calls if call.kind != "barrier"]
        gathered = [call for call in work if call.kind.startswith("all_gather")]
        if addable and gathered:
            return Finding("gathers what can be added", f"Rank {rank} gathers packets that may be added.")
        if not addable and any(call.kind in ("all_reduce", "reduce_scatter", "reduce") for call in work):
            return Finding("added what cannot be added", f"Rank {rank} all-reduces packets that cannot be added.")
        most = _most_bytes(case, rank, addable)
        sent = sum(call.bytes for call in work) + wire.bytes_sent(rank)
        if sent > most:
            return Finding(
                "more than packets travels",
                f"Rank {rank} moved {sent} bytes; its packets and those it gathers have {most}.",
                f"at most {most} bytes",
                f"{sent} bytes",
            )
        if case.about.get("overlap"):
            found = _waits(calls, rank)
            if found is not None:
                return found
    return None


def _most_bytes(case: Case, rank: int, addable: bool) -> int:
    """Return the bytes of all packets; gathered ones count once for each rank, as a recording counts them."""
    about = cast(Mapping[str, Any], case.inputs[rank]["compressor"])
    count = len(cast(list[int], case.about["ranks"]))
    total = 0
    for buffers in cast(list[list[Tensor]], case.inputs[rank]["steps"]):
        for buffer in buffers:
            total += -(-buffer.numel() // 2) * _OF_EIGHT if addable else count * _OF_EIGHT * (1 + int(about["length"]))
    return total + (
        0 if not addable else _OF_EIGHT * sum(len(each) for each in cast(list[Any], case.inputs[rank]["steps"]))
    )


def _waits(calls: list[CollectiveCall], rank: int) -> Finding | None:
    """Return a finding if a collective was waited for before the barrier behind its hook."""
    ordered = sorted(calls, key=lambda call: call.sequence)
    for call in ordered:
        if call.kind == "barrier" or call.waited is None:
            continue
        behind = next(
            (each.sequence for each in ordered if each.kind == "barrier" and each.sequence > call.sequence), None
        )
        if behind is not None and call.waited <= behind:
            return Finding("waits inside the hook", f"Rank {rank} waits for its {call.kind} before the hook returns.")
    return None
