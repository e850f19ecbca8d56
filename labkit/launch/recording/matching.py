"""Which receive took which send: the k-th of the same source, destination, tag and group, in the order posted."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from labkit.launch.recording import layout
from labkit.timeline.messages import RECEIVES, SENDS, SERVED
from labkit.timeline.span import Problem


def match_messages(rows: dict[str, Any]) -> tuple[Any, list[tuple[int, int]], list[Problem]]:
    """Return the flow number of every row (-1 for none), what answered remote calls, and what is wrong with messages.

    The second is for each call whose answer did not come from its own serving: the row of what it came from, and the
    call's. A serving's line and bytes become those of the call.

    Args:
        rows: Columns rank, index, kind, peer, link, tag, group, number, bytes, source, meaning, flags, state and times;
            each rank's rows in the order posted.
    """
    flow = np.full(len(rows["rank"]), -1, dtype=np.int64)
    ends: dict[tuple[Any, ...], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    is_call = np.isin(rows["kind"], (*SENDS, *RECEIVES))
    for row in np.flatnonzero(is_call).tolist():
        rank, peer = int(rows["rank"][row]), int(rows["peer"][row])
        sends = rows["kind"][row] in SENDS
        src, dst = (rank, peer) if sends else (peer, rank)
        ends[src, dst, int(rows["tag"][row]), str(rows["group"][row])][0 if sends else 1].append(row)
    problems = []
    next_flow = 0
    for key in sorted(ends):
        sent, received = ends[key]
        for send, receive in zip(sent, received, strict=False):
            flow[send] = flow[receive] = next_flow
            next_flow += 1
            if rows["bytes"][send] != rows["bytes"][receive] and not rows["flags"][receive] & layout.FAILED:
                problems.append(_size_mismatch(rows, send, receive))
            elif rows["meaning"][send] != rows["meaning"][receive]:
                problems.append(_dtype_mismatch(rows, send, receive))
        problems += [_unmatched(rows, row, "unmatched_send") for row in sent[len(received) :]]
        problems += [_unmatched(rows, row, "unmatched_recv") for row in received[len(sent) :]]
    replies = _join_remote_calls(rows, flow, next_flow)
    problems += [_changed(rows, row) for row in np.flatnonzero(rows["flags"] & layout.BUFFER_CHANGED).tolist()]
    unfinished = is_call & (rows["flags"] & layout.NOT_WAITED != 0) & np.isin(rows["kind"], ("isend", "irecv"))
    problems += [_not_waited(rows, row) for row in np.flatnonzero(unfinished & (flow >= 0)).tolist()]
    return flow, replies, problems


def _join_remote_calls(rows: dict[str, Any], flow: Any, next_flow: int) -> list[tuple[int, int]]:
    """Number each remote call and its execution alike, from next_flow: the callee notes whose record it came from."""
    served = np.flatnonzero((rows["kind"] == SERVED) & (rows["link"] >= 0))
    if not len(served):
        return []
    row_of = {key: row for row, key in enumerate(zip(rows["rank"].tolist(), rows["index"].tolist(), strict=True))}
    replies, made = [], {}
    for row in served.tolist():
        call = row_of.get((int(rows["peer"][row]), int(rows["link"][row])))
        if call is None:
            continue
        flow[row] = flow[call] = next_flow
        next_flow += 1
        rows["source"][row], rows["bytes"][row] = rows["source"][call], rows["bytes"][call]
        by = row_of.get((int(rows["rank"][row]), int(rows["number"][row]) - 1))
        if by is not None:
            replies.append((by, call))
        made[call] = row if by is None else by
    for row in np.flatnonzero((rows["kind"] == "to_here") & (rows["link"] >= 0)).tolist():
        by = made.get(row_of.get((int(rows["rank"][row]), int(rows["link"][row])), -1))
        if by is not None and rows["end_ns"][by] > rows["start_ns"][row]:  # else the object was there when asked for
            replies.append((by, row))
    return replies


def where(rows: dict[str, Any], row: int) -> str:
    """Return " (train.py, line 8)" for the line that a row came from, "" where none is known."""
    source = str(rows["source"][row])
    path, _, line = source.rpartition(":")
    return f" ({path.rsplit('/', 1)[-1]}, line {line})" if source else ""


def _unmatched(rows: dict[str, Any], row: int, kind: str) -> Problem:
    rank, peer, num_bytes = int(rows["rank"][row]), int(rows["peer"][row]), int(rows["bytes"][row])
    word, line = str(rows["kind"][row]), where(rows, row)
    if kind == "unmatched_send":
        text = (
            f"Rank {rank} posted {word} of {num_bytes} B to rank {peer}{line}, and rank {peer} has no receive for it."
        )
    elif peer < 0:
        text = f"Rank {rank} posted {word} of {num_bytes} B from any rank{line}, and nothing came."
    else:
        text = f"Rank {rank} posted {word} of {num_bytes} B from rank {peer}{line}, and rank {peer} has no send for it."
    return Problem(kind, rank, text, row)


def _size_mismatch(rows: dict[str, Any], send: int, receive: int) -> Problem:
    src, dst = int(rows["rank"][send]), int(rows["rank"][receive])
    text = (
        f"Rank {src} sent {int(rows['bytes'][send])} B to rank {dst}{where(rows, send)}, "
        f"which asked for {int(rows['bytes'][receive])} B{where(rows, receive)}."
    )
    return Problem("size_mismatch", dst, text, receive)


def _dtype_mismatch(rows: dict[str, Any], send: int, receive: int) -> Problem:
    src, dst = int(rows["rank"][send]), int(rows["rank"][receive])
    text = (
        f"Rank {src} sent {rows['meaning'][send]} to rank {dst}{where(rows, send)}, "
        f"which takes the bytes for {rows['meaning'][receive]}{where(rows, receive)}."
    )
    return Problem("mismatch", dst, text, receive)


def _changed(rows: dict[str, Any], row: int) -> Problem:
    rank, peer = int(rows["rank"][row]), int(rows["peer"][row])
    text = f"Rank {rank} wrote into the buffer of its isend to rank {peer}{where(rows, row)} before wait() returned."
    return Problem("changed_in_flight", rank, text, row)


def _not_waited(rows: dict[str, Any], row: int) -> Problem:
    rank, peer, word = int(rows["rank"][row]), int(rows["peer"][row]), str(rows["kind"][row])
    end = "to" if word == "isend" else "from"
    text = f"Rank {rank} never waited for its {word} {end} rank {peer}{where(rows, row)}."
    return Problem("not_waited", rank, text, row)
