"""What an all-reduce really sent, read from a run on numbers that say whose they are and to which chunk they belong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

from labkit.plans.played import Fault, Played, Step, Transfer, Write, missing
from labkit.plans.reference.rings import ring_plan
from labkit.timeline.timeline import Timeline

_BASE = 16  # a number counts up to 15 times each rank's contribution
Content: TypeAlias = tuple[int, tuple[int, ...]] | None
"""A chunk's number and how often each rank's contribution is in it; None: neither can be told."""
Watched: TypeAlias = tuple[list[tuple[list[float], int, list[float]]], list[float]]
"""Of one rank: for each message its tensor then, the peer and what was sent; and its tensor at the end."""


def tagged(rank: int, world_size: int) -> list[float]:
    """Return rank's contribution: entry c tells, in any sum over ranks, that it is chunk c and who is in it."""
    return [float(_BASE**rank + chunk * _BASE**world_size) for chunk in range(world_size)]


def read_tag(value: float, world_size: int) -> Content:
    """Return which chunk a sum of tagged numbers belongs to, and how often each rank is in it."""
    if not math.isfinite(value) or value < 0 or value != int(value):
        return None
    chunks, low = divmod(int(value), _BASE**world_size)
    counts = tuple(low // _BASE**rank % _BASE for rank in range(world_size))
    total = sum(counts)
    return (chunks // total, counts) if total and chunks % total == 0 and chunks // total < world_size else None


def watched_ring(results: Sequence[Watched], size: int) -> Played:
    """Return what was sent and held after every step, held against the ring; step k of a rank is its k-th message."""
    expected = [[r for r in ring_plan(rank, size) if r["kind"] == "Send"] for rank in range(size)]
    num_steps = max(len(sent) for sent, _ in results)
    steps: list[Step] = []
    faults: list[Fault] = []
    held = [tagged(rank, size) for rank in range(size)]
    for step in range(num_steps):
        transfers, writes = [], []
        for rank, (sent, result) in enumerate(results):
            after = sent[step + 1][0] if step + 1 < len(sent) else result
            for chunk, (before, now) in enumerate(zip(held[rank], after, strict=True)):
                if now != before:
                    writes.append(_write(rank, chunk, now, size))
            held[rank] = after
            if step < len(sent):
                _, peer, (value,) = sent[step]
                wanted = expected[rank][step] if step < len(expected[rank]) else None
                transfer, text = _transfer(rank, step, peer, value, wanted, size)
                transfers.append(transfer)
                faults += [Fault(step, rank, text)] if text else []
        steps.append(Step(tuple(transfers), tuple(writes)))
    played = Played(size, tuple(steps), tuple(faults))
    return Played(size, played.steps, (*faults, *missing(played.state(), num_steps - 1)))


def _write(rank: int, chunk: int, value: float, size: int) -> Write:
    found = read_tag(value, size)
    if found is None:
        return Write(rank, chunk, 0, wrong=True)
    mask = sum(1 << source for source, count in enumerate(found[1]) if count)
    return Write(rank, chunk, mask, wrong=found[0] != chunk or max(found[1]) > 1)


def _transfer(
    rank: int, step: int, peer: int, value: float, wanted: dict[str, Any] | None, size: int
) -> tuple[Transfer, str]:
    """Return a message as the picture shows it, and what is wrong with it, or ""."""
    found = read_tag(value, size)
    chunk = found[0] if found else -1
    into = chunk if wanted is None else int(wanted["chunk"])
    if wanted is None:
        text = f"rank {rank} sends c{chunk} to rank {peer}; a ring of {size} has {2 * (size - 1)} steps only"
    elif peer != wanted["peer"]:
        text = f"rank {rank} sends to rank {peer}; in the ring it sends to rank {wanted['peer']}"
    elif found is None:
        text = f"rank {peer} expected c{into} from rank {rank}, got numbers that are no sum of one chunk"
    elif chunk != into:
        text = f"rank {peer} expected c{into} from rank {rank}, got c{chunk}"
    elif max(found[1]) > 1:
        text = f"rank {rank} sends c{chunk} with rank {found[1].index(max(found[1]))}'s contribution more than once"
    else:
        text = ""
    return Transfer(rank, chunk, peer, into, bool(text)), f"Step {step}: {text}." if text else ""


def message_times(timeline: Timeline | None) -> list[list[float]]:
    """Return [src, dst, step, start, end] of each message, from its send's begin to its receive's end, in seconds."""
    if timeline is None:
        return []
    rows = list(timeline.rows())
    arrival = {span.flow: span.end_ns for span in rows if span.kind in ("recv", "irecv")}
    sends = [span for span in rows if span.kind in ("send", "isend") and span.flow >= 0]
    first = min((span.start_ns for span in sends), default=0)
    count = [0] * timeline.num_ranks
    times = []
    for span in sends:
        end = max(arrival.get(span.flow, span.end_ns), span.end_ns)
        times.append([span.rank, span.peer, count[span.rank], (span.start_ns - first) / 1e9, (end - first) / 1e9])
        count[span.rank] += 1
    return times
