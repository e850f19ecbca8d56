"""Who waits for whom, in sentences, from what each rank recorded."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from labkit.launch.recording import RankLog, Wait, layout
from labkit.launch.recording.read import describe_group
from labkit.timeline.messages import RECEIVES, SENDS
from labkit.timeline.source_lines import shown_source
from labkit.units import format_bytes
from labkit.words import tagged

POINT_TO_POINT = frozenset({"send", "recv", "isend", "irecv", "span"})
_SAME_SIZE = frozenset({"all_reduce", "broadcast", "reduce"})
_ROOTS = {"broadcast": "src", "scatter": "src", "reduce": "dst", "gather": "dst"}
"""What a collective calls the rank that it names."""


def describe_wait(rank: int, logs: Mapping[int, RankLog], finished: frozenset[int]) -> str:
    """Return what a rank waits for and who keeps it waiting, "" where it waits in no communication.

    Args:
        rank: The rank that may wait.
        logs: What every rank recorded until now.
        finished: Ranks whose function has returned.
    """
    wait = logs[rank].waiting if rank in logs else None
    if wait is None:
        return _answer_words(rank, logs[rank], finished) if rank in logs else ""
    return _wait_words(rank, wait, logs, finished) + _posted_words(wait)


def _wait_words(rank: int, wait: Wait, logs: Mapping[int, RankLog], finished: frozenset[int]) -> str:
    size = f" ({format_bytes(wait.bytes)})" if wait.bytes else ""
    if wait.operation in ("recv", "irecv"):
        source = "any rank" if wait.peer is None else f"rank {wait.peer}"
        more = _finished_words(wait.peer, finished) or _other_tag_words(rank, wait, logs)
        return f"rank {rank} waits for a message from {source}{tagged(wait.tag)}{size}{more}"
    if wait.operation in ("send", "isend"):
        more = _finished_words(wait.peer, finished) or _other_tag_words(rank, wait, logs)
        return f"rank {rank} waits to send {format_bytes(wait.bytes)} to rank {wait.peer}{tagged(wait.tag)}{more}"
    if wait.operation.startswith("store."):
        return f"rank {rank} waits in {wait.operation} for a key that nobody has set"
    return f"rank {rank} waits in {wait.operation} #{wait.number + 1}{size}{_missing_words(rank, wait, logs, finished)}"


def _posted_words(wait: Wait) -> str:
    """Return the line of a call that a GPU waits in: the rank itself stands further down, if it waits at all."""
    return f", called at {shown_source(wait.source)[0]}" if wait.on_device and wait.source else ""


def _answer_words(rank: int, log: RankLog, finished: frozenset[int]) -> str:
    """Return which remote call a rank waits for, of several threads the one that has waited longest; "" for none."""
    records = log.records
    for row in np.flatnonzero(records["state"] == layout.OPEN).tolist():
        record = records[row]
        kind, link = log.name(record["kind"]), int(record["link"])
        if kind == "wait" and link < 0:
            return f"rank {rank} waits for a future that nobody has completed"
        if kind == "wait" and link < len(records):
            record = records[link]
        elif kind not in ("rpc_sync", "to_here"):
            continue
        peer = int(record["peer"])
        whose = f"from rank {peer}{_finished_words(peer, finished)}"
        if log.name(record["kind"]) == "to_here":
            return f"rank {rank} waits in to_here() for an object {whose}"
        return f"rank {rank} waits for the answer of {log.name(record['name'])}() {whose}"
    return ""


def _finished_words(peer: int | None, finished: frozenset[int]) -> str:
    return ", which has already finished" if peer in finished else ""


def _other_tag_words(rank: int, wait: Wait, logs: Mapping[int, RankLog]) -> str:
    """Return what the other end does with a message of another tag, "" where it does nothing of the kind."""
    sends = wait.operation in SENDS
    other = None if wait.peer is None else logs.get(wait.peer)
    for there in () if other is None else other.waits:
        opposite = there.operation in (RECEIVES if sends else SENDS) and there.peer == rank
        if opposite and there.group == wait.group and there.tag != wait.tag:
            return f", which {'asks for' if sends else 'sends'} tag {there.tag}"
    return ""


def _missing_words(rank: int, wait: Wait, logs: Mapping[int, RankLog], finished: frozenset[int]) -> str:
    """Return who is not in the collective that a rank waits in: the part of the sentence after its name."""
    elsewhere: list[str] = []
    late: list[int] = []
    for other in wait.group_ranks or sorted(logs):
        log = logs.get(other)
        if other == rank or log is None:
            continue
        there = log.waiting
        if there is not None and there.group == wait.group and there.operation not in POINT_TO_POINT:
            if there.number == wait.number and there.operation != wait.operation:
                elsewhere.append(f"where rank {other} is in {there.operation} instead")
            elif there.number == wait.number and there.bytes != wait.bytes and wait.operation in _SAME_SIZE:
                elsewhere.append(f"where rank {other} brings {format_bytes(there.bytes)}")
            elif there.number == wait.number and _roots_differ(there, wait):
                says = _ROOTS.get(wait.operation, "root")
                elsewhere.append(f"where rank {other} says {says}={there.root}, not {says}={wait.root}")
        called = {number: kind for number, kind, _ in _collectives(log, wait.group)}
        past = there is None or (there.group, there.number) != (wait.group, wait.number)
        if not called or max(called) < wait.number:
            late.append(other)
        elif past and called.get(wait.number, wait.operation) != wait.operation:
            elsewhere.append(f"where rank {other} called {called[wait.number]}")
    words = [f", {part}" for part in elsewhere]
    done = [other for other in late if other in finished]
    late = [other for other in late if other not in finished]
    if late:
        words.append(f", which {_ranks_words(late)} {'has' if len(late) == 1 else 'have'} not reached")
    if done:
        words.append(f", which {_ranks_words(done)} finished without")
    return "".join(words)


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
        if log.names[index] and describe_group(log.names[index])[0] == group:
            rows = records[records["group"] == index]
            for number, kind, num_bytes in zip(rows["number"], rows["name"], rows["bytes"], strict=True):
                if log.names[kind] not in POINT_TO_POINT:
                    found.append((int(number), log.names[kind], int(num_bytes)))
    return found


def _ranks_words(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown = [str(rank) for rank in ranks[:8]]
    if len(ranks) > 8:
        return f"ranks {', '.join(shown)} and {len(ranks) - 8} more"
    return f"ranks {', '.join(shown[:-1])} and {shown[-1]}"
