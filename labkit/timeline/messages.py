"""A timeline seen as messages and collectives, which is what checks ask about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from labkit.timeline.span import Collective, Lane, Message

if TYPE_CHECKING:
    from labkit.timeline.timeline import Timeline

SENDS = ("send", "isend")
RECEIVES = ("recv", "irecv")
REMOTE_CALLS = ("rpc_sync", "rpc_async", "remote", "to_here")
"""Calls of torch.distributed.rpc at the caller."""
SERVED = "rpc_serve"
"""The execution of a remote call at the callee; the two share a flow."""


def call_positions(timeline: Timeline) -> dict[int, int]:
    """Return for every communication row its position among the communication calls of its rank, from 0."""
    counts: dict[int, int] = {}
    positions: dict[int, int] = {}
    rows = np.flatnonzero(is_call(timeline))
    for row, rank in zip(rows.tolist(), timeline.rank[rows].tolist(), strict=True):
        positions[row] = counts.get(rank, 0)
        counts[rank] = positions[row] + 1
    return positions


def messages(timeline: Timeline) -> list[Message]:
    """Return every point-to-point message, ordered by source rank and then by when its send was posted."""
    positions = call_positions(timeline)
    receives = np.flatnonzero(of_kind(timeline, *RECEIVES) & (timeline.flow >= 0))
    received = {int(timeline.flow[row]): positions[int(row)] for row in receives}
    found = [
        Message(
            src=int(timeline.rank[row]),
            dst=int(timeline.peer[row]),
            bytes=int(timeline.bytes[row]),
            kind=str(timeline.kind[row]),
            sequence=positions[row],
            received=received.get(int(timeline.flow[row])),
        )
        for row in np.flatnonzero(of_kind(timeline, *SENDS) & is_call(timeline)).tolist()
    ]
    return sorted(found, key=lambda message: (message.src, message.sequence))


def collectives(timeline: Timeline) -> list[Collective]:
    """Return every call of a collective, ordered by rank and then by when it was called; remote calls are none."""
    positions = call_positions(timeline)
    rows = np.flatnonzero(is_call(timeline) & ~of_kind(timeline, *SENDS, *RECEIVES, *REMOTE_CALLS))
    found = [
        Collective(int(timeline.rank[row]), str(timeline.kind[row]), int(timeline.bytes[row]), positions[row])
        for row in rows.tolist()
    ]
    return sorted(found, key=lambda call: (call.rank, call.sequence))


def is_call(timeline: Timeline) -> Any:
    """Return which rows are calls of a communication method."""
    return (timeline.lane == Lane.COMMUNICATION) & ~of_kind(timeline, "span")


def of_kind(timeline: Timeline, *kinds: str) -> Any:
    """Return which rows are of one of these kinds."""
    words, code = timeline.kind_codes
    wanted = np.array([word in kinds for word in words], dtype=bool)
    return wanted[code] if wanted.any() else np.zeros(len(timeline), dtype=bool)
