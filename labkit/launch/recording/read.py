"""The reading side of event logs: works while the rank runs, is blocked in C++, or is dead."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from labkit.launch.recording import layout
from labkit.timeline.span import Lane


@dataclass(frozen=True)
class Wait:
    """What one thread of a rank is blocked in.

    Attributes:
        operation: c10d's word, "recv", "all_reduce", ...
        peer: Global rank at the other end, None for a collective and for a receive from any rank.
        bytes: Payload.
        group: Name of the process group.
        group_ranks: Its global ranks, empty where they were not known yet.
        number: For a collective, how many this rank called in the group before.
        since_ns: Since when, CLOCK_MONOTONIC.
        source: The learner's file:line, "" where there is none.
        thread: 0 for the first thread that communicated.
        on_device: Whether the rank's GPU waits, whatever its own thread does.
        tag: Tag of a message.
        root: Global rank that a collective names, as broadcast its source; None where it names none or none is known.
    """

    operation: str
    peer: int | None
    bytes: int
    group: str
    group_ranks: tuple[int, ...]
    number: int
    since_ns: int
    source: str
    thread: int
    on_device: bool = False
    tag: int = 0
    root: int | None = None


@dataclass(frozen=True)
class RankLog:
    """What one rank has written so far.

    Attributes:
        rank: Global rank, -1 where there is no record.
        records: Its records in the order they were begun (see layout.DTYPE); an EMPTY one was being written just then.
        names: The interned names that records point to.
        waits: What its threads are blocked in, longest first.
        pending: Calls that were posted and are not known to be complete, oldest first; among them those that C++ (DDP's
            reducer) waits for.
        dropped: Records that did not fit.
        started_ns: When recording began.
        last_ns: The last time it is known to have been alive.
        closed: Whether it ended in order.
        missing: Why there is no record, "" where there is one.
        clock_method: Which clock its times are of, and how it was compared with those of other hosts.
        clock_error_ns: By how much its times may be off those of the other ranks.
        host: Where it ran, "" on this host.
    """

    rank: int
    records: Any
    names: tuple[str, ...] = ("",)
    waits: tuple[Wait, ...] = ()
    pending: tuple[Wait, ...] = ()
    dropped: int = 0
    started_ns: int = 0
    last_ns: int = 0
    closed: bool = False
    missing: str = field(default="")
    clock_method: str = "CLOCK_MONOTONIC of one host"
    clock_error_ns: int = 0
    host: str = ""

    def name(self, index: int) -> str:
        """Return an interned name, "" where the rank was just writing it."""
        return _name(self.names, index)

    @property
    def waiting(self) -> Wait | None:
        """Return what the rank has been blocked in for longest, None where it is not."""
        return self.waits[0] if self.waits else None


def read_log(path: str | Path, alive_until_ns: int | None = None) -> RankLog:
    """Return what the rank that writes this file has recorded until now.

    A file that is missing or not a log gives a RankLog with rank -1 and the reason in ``missing``.

    Args:
        path: The log, or a copy of it.
        alive_until_ns: When the rank was last seen alive, where its process is not one of this host.
    """
    try:
        data = _read_written(Path(path))
    except OSError as error:
        return RankLog(-1, np.empty(0, layout.DTYPE), missing=f"{Path(path).name}: {error.strerror}")
    if len(data) < layout.RECORDS_AT or data[: len(layout.MAGIC)] != layout.MAGIC:
        return RankLog(-1, np.empty(0, layout.DTYPE), missing=f"{Path(path).name} is not an event log")
    _, rank, pid, started_ns, closed_ns, _, dropped, name_bytes = layout.HEADER.unpack_from(data, 0)
    records = np.frombuffer(data, layout.DTYPE, offset=layout.RECORDS_AT).copy()
    written = np.flatnonzero(records["state"] != layout.EMPTY)
    records = records[: int(written[-1]) + 1 if written.size else 0]
    names = _names(data, name_bytes)
    last_ns = closed_ns or _last_time(records, started_ns)
    if not closed_ns and alive_until_ns is not None:
        last_ns = max(last_ns, alive_until_ns)
    elif not closed_ns and _alive(pid):
        last_ns = time.monotonic_ns()
    return RankLog(
        rank,
        records,
        names,
        _waits(data, names, records),
        _pending(names, records),
        dropped,
        started_ns,
        last_ns,
        closed=bool(closed_ns),
        clock_error_ns=layout.DEVICE_ERROR.unpack_from(data, layout.DEVICE_ERROR_AT)[0],
    )


def describe_group(description: str) -> tuple[str, tuple[int, ...]]:
    """Return the name and the global ranks of an interned group description."""
    name, _, ranks = description.rpartition("|")
    return name, tuple(int(rank) for rank in ranks.split(",") if rank)


def _read_written(path: Path) -> bytes:
    """Read the header, the names and as many records as were begun; the rest of the sparse file is never touched."""
    with path.open("rb") as file:
        head = file.read(layout.HEADER.size)
        if len(head) < layout.HEADER.size or head[: len(layout.MAGIC)] != layout.MAGIC:
            return head
        begun = layout.HEADER.unpack(head)[5]
        file.seek(0)
        # Two threads may publish their counts out of order; a few records more cost nothing, empty ones are skipped.
        data = file.read(layout.RECORDS_AT + (begun + 64) * layout.RECORD_BYTES)
        whole = max(len(data) - layout.RECORDS_AT, 0) // layout.RECORD_BYTES * layout.RECORD_BYTES
        return data[: layout.RECORDS_AT + whole]


def _names(data: bytes, num_bytes: int) -> tuple[str, ...]:
    names, at, end = [], layout.NAMES_AT, layout.NAMES_AT + num_bytes
    while at < end:
        (length,) = layout.NAME_LENGTH.unpack_from(data, at)
        at += layout.NAME_LENGTH.size
        names.append(data[at : at + length].decode("utf-8", "replace"))
        at += length
    return tuple(names) or ("",)


def _waits(data: bytes, names: tuple[str, ...], records: Any) -> tuple[Wait, ...]:
    found = []
    for slot in range(layout.NUM_WAITS):
        since_ns, num_bytes, peer, operation, group, source, thread, tag, record, root = layout.WAIT.unpack_from(
            data, layout.WAITS_AT + slot * layout.WAIT_BYTES
        )
        if since_ns:
            known = 0 <= record < len(records)
            number = int(records["number"][record]) if known else 0
            wait = _wait(names, operation, peer, num_bytes, group, number, since_ns, source, thread)
            on_device = known and bool(records["flags"][record] & layout.DEVICE_TIME)
            found.append(replace(wait, on_device=on_device, tag=tag, root=None if root < 0 else root))
    return tuple(sorted(found, key=lambda wait: wait.since_ns))


def _pending(names: tuple[str, ...], records: Any) -> tuple[Wait, ...]:
    still_open = records[(records["state"] == layout.OPEN) & (records["lane"] == Lane.COMMUNICATION)]
    fields = ("kind", "peer", "bytes", "group", "number", "start", "source", "thread", "tag")
    rows = zip(*(still_open[field].tolist() for field in fields), strict=True)
    found = [replace(_wait(names, *row[:-1]), tag=row[-1]) for row in rows]
    return tuple(wait for wait in found if wait.operation != "span")


def _wait(
    names: tuple[str, ...],
    operation: int,
    peer: int,
    num_bytes: int,
    group: int,
    number: int,
    since_ns: int,
    source: int,
    thread: int,
) -> Wait:
    name, ranks = describe_group(_name(names, group))
    other = None if peer < 0 else peer
    return Wait(_name(names, operation), other, num_bytes, name, ranks, number, since_ns, _name(names, source), thread)


def _name(names: tuple[str, ...], index: int) -> str:
    """Return the name, or "" where the rank was just writing it."""
    return names[index] if index < len(names) else ""


def _last_time(records: Any, started_ns: int) -> int:
    return max(started_ns, int(records["start"].max(initial=0)), int(records["end"].max(initial=0)))


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
