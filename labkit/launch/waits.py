"""What a rank waits for, from what each rank recorded; labkit.deadlock makes sentences of it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from labkit.deadlock import ANY_RANK, NOBODY_SETS, Waiting, line_of
from labkit.launch.recording import RankLog, Wait, layout
from labkit.launch.recording.read import describe_group
from labkit.units import format_bytes

POINT_TO_POINT = frozenset({"send", "recv", "isend", "irecv", "span"})
_SAME_SIZE = frozenset({"all_reduce", "broadcast", "reduce"})
_ROOTS = {"broadcast": "src", "scatter": "src", "reduce": "dst", "gather": "dst"}
"""What a collective calls the rank that it names."""


def waiting_of(rank: int, logs: Mapping[int, RankLog]) -> Waiting | None:
    """Return what a rank has waited for longest, None where it waits in no communication.

    Args:
        rank: The rank that may wait.
        logs: What every rank recorded until now.
    """
    if rank not in logs:
        return None
    wait = logs[rank].waiting
    if wait is None:
        return _answer(rank, logs[rank])
    where = line_of(wait.source)
    others = tuple(other for other in wait.group_ranks or sorted(logs) if other != rank)
    if wait.operation in POINT_TO_POINT:
        peer, peers = (ANY_RANK, others) if wait.peer is None else (wait.peer, (wait.peer,))
        return Waiting(
            rank, wait.operation, peers, peer, wait.tag, wait.bytes, wait.group, wait.group_ranks, where=where
        )
    if wait.operation.startswith("store."):
        return Waiting(rank, wait.operation, others, said=wait.operation + NOBODY_SETS, where=where)
    disagrees = dict(_disagreeing(wait, others, logs))
    late = {other for other in others if other in logs and _is_late(logs[other], wait)}
    return Waiting(
        rank, wait.operation, tuple(sorted(late | disagrees.keys())), num_bytes=wait.bytes, group=wait.group,
        members=wait.group_ranks, number=wait.number, disagrees=disagrees, where=where,
    )  # fmt: skip


def _answer(rank: int, log: RankLog) -> Waiting | None:
    """Return which remote call a rank waits for, of several threads the one that has waited longest; None for none."""
    records = log.records
    for row in np.flatnonzero(records["state"] == layout.OPEN).tolist():
        record = records[row]
        where = line_of(log.name(record["source"]))
        kind, link = log.name(record["kind"]), int(record["link"])
        if kind == "wait" and link < 0:
            return Waiting(rank, "wait", said="Future.wait, for a future that nobody has completed", where=where)
        if kind == "wait" and link < len(records):
            record = records[link]
        elif kind not in ("rpc_sync", "to_here"):
            continue
        kind, peer = log.name(record["kind"]), int(record["peer"])
        what = "for an object" if kind == "to_here" else f"{log.name(record['name'])}()"
        return Waiting(rank, kind, (peer,), said=f"{kind} {what} on rank {peer}", where=where)
    return None


def _disagreeing(wait: Wait, others: tuple[int, ...], logs: Mapping[int, RankLog]) -> list[tuple[int, str]]:
    """Return who is in the group's same place with another call than this one, and with which."""
    found = []
    for other in others:
        log = logs.get(other)
        if log is None:
            continue
        there = log.waiting
        if there is not None and there.group == wait.group and there.operation not in POINT_TO_POINT:
            if there.number == wait.number and there.operation != wait.operation:
                found.append((other, f"is in {there.operation} instead"))
            elif there.number == wait.number and there.bytes != wait.bytes and wait.operation in _SAME_SIZE:
                found.append((other, f"brings {format_bytes(there.bytes)}"))
            elif there.number == wait.number and _roots_differ(there, wait):
                says = _ROOTS.get(wait.operation, "root")
                found.append((other, f"says {says}={there.root}, not {says}={wait.root}"))
        called = {number: kind for number, kind, _ in _collectives(log, wait.group)}
        past = there is None or (there.group, there.number) != (wait.group, wait.number)
        if past and not _is_late(log, wait) and called.get(wait.number, wait.operation) != wait.operation:
            found.append((other, f"called {called[wait.number]}"))
    return found


def _is_late(log: RankLog, wait: Wait) -> bool:
    """Return whether a rank has not come to the collective that another one waits in."""
    return collectives_begun(log, wait.group) <= wait.number


def _roots_differ(one: Wait, other: Wait) -> bool:
    return None not in (one.root, other.root) and one.root != other.root


def collectives_begun(log: RankLog, group: str) -> int:
    """Return how many collectives a rank has begun in the group of this name."""
    numbers = [number for number, _, _ in _collectives(log, group)]
    return max(numbers) + 1 if numbers else 0


def meets(log: RankLog, wait: Wait) -> bool:
    """Return whether a rank has begun the very collective that another one waits in."""
    same = (there for there in log.waits if (there.group, there.number) == (wait.group, wait.number))
    if any(_roots_differ(there, wait) for there in same):
        return False
    for number, kind, num_bytes in _collectives(log, wait.group):
        if number == wait.number:
            return kind == wait.operation and (kind not in _SAME_SIZE or num_bytes == wait.bytes)
    return False


def _collectives(log: RankLog, group: str) -> list[tuple[int, str, int]]:
    """Return number, kind and bytes of the collectives a rank has begun in a group."""
    records = log.records
    found = []
    for index in set(records["group"].tolist()):
        if log.name(index) and describe_group(log.name(index))[0] == group:
            rows = records[records["group"] == index]
            for number, kind, num_bytes in zip(rows["number"], rows["name"], rows["bytes"], strict=True):
                if log.name(kind) not in POINT_TO_POINT:
                    found.append((int(number), log.name(kind), int(num_bytes)))
    return found
