"""What an all-reduce really sent, read from a run on numbers that say whose they are and to which chunk they belong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from labkit.plans.all_reduce_facts import Content, Outcome, Step, Transfer, Write, missing
from labkit.plans.all_reduce_plan import Fault, Record, Send
from labkit.timeline.timeline import Timeline

_BASE = 16  # a number counts up to 15 times each rank's contribution
Watched: TypeAlias = tuple[list[tuple[list[float], int, list[float]]], list[float]]
"""Of one rank: for each message its tensor then, the peer and what was sent; and its tensor at the end."""


def tagged(rank: int, world_size: int) -> list[float]:
    """Return rank's contribution: entry c tells, in any sum over ranks, that it is chunk c and who is in it."""
    return [float(_BASE**rank + chunk * _BASE**world_size) for chunk in range(world_size)]


def read_tag(value: float, world_size: int) -> tuple[int, tuple[int, ...]] | None:
    """Return which chunk a sum of tagged numbers belongs to, and how often each rank is in it; None: it is none."""
    if not math.isfinite(value) or value < 0 or value != int(value):
        return None
    chunks, low = divmod(int(value), _BASE**world_size)
    counts = tuple(low // _BASE**rank % _BASE for rank in range(world_size))
    total = sum(counts)
    return (chunks // total, counts) if total and chunks % total == 0 and chunks // total < world_size else None


def watched_ring(results: Sequence[Watched], plans: Sequence[Sequence[Record]]) -> Outcome:
    """Return what was sent and held after every step, held against plans; step k of a rank is its k-th message."""
    size, expected = len(plans), [[record for record in plan if isinstance(record, Send)] for plan in plans]
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
                    writes.append(Write(rank, chunk, _content(chunk, now, size)))
            held[rank] = after
            if step < len(sent):
                _, peer, (value,) = sent[step]
                wanted = expected[rank][step] if step < len(expected[rank]) else None
                transfer, fault = _transfer(rank, step, peer, value, wanted, size)
                transfers.append(transfer)
                faults += [fault] if fault else []
        steps.append(Step(step, tuple(transfers), tuple(writes)))
    outcome = Outcome(size, size, tuple(steps), tuple(faults))
    return replace(outcome, faults=(*faults, *missing(outcome.contents())))


def _content(chunk: int, value: float, size: int) -> Content:
    found = read_tag(value, size)
    return Content((0,) * size, foreign=True) if found is None else Content(found[1], foreign=found[0] != chunk)


def _transfer(
    rank: int, step: int, peer: int, value: float, wanted: Send | None, size: int
) -> tuple[Transfer, Fault | None]:
    """Return a message as the picture shows it, and what is wrong with it."""
    found = read_tag(value, size)
    chunk = found[0] if found else -1
    into = chunk if wanted is None else wanted.chunk
    kind, text = "", ""
    if wanted is None:
        kind = "too_many"
        text = f"rank {rank} sends c{chunk} to rank {peer}; a ring of {size} has {2 * (size - 1)} steps only"
    elif peer != wanted.peer:
        kind, text = "wrong_peer", f"rank {rank} sends to rank {peer}; in the ring it sends to rank {wanted.peer}"
    elif found is None or chunk != into:
        got = "numbers that are no sum of one chunk" if found is None else f"c{chunk}"
        kind, text = "chunk_mismatch", f"rank {peer} expected c{into} from rank {rank}, got {got}"
    elif max(found[1]) > 1:
        kind = "twice"
        text = f"rank {rank} sends c{chunk} with rank {found[1].index(max(found[1]))}'s contribution more than once"
    fault = Fault(kind, f"Step {step}: {text}.", rank, step) if kind else None
    return Transfer(rank, chunk, peer, into, fault is not None), fault


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
