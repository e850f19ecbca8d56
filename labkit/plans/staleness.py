"""Updates of an asynchronous parameter server: which version each gradient was made with, and applied to."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from labkit.errors import ConfigError

_NAMES = ("worker", "version_read", "version_applied", "start", "end")
_NORMS = ("error", "residual")
_MORE = ("sequence", "dropped", *_NORMS)


@dataclass(frozen=True)
class Update:
    """One gradient that was applied, or dropped.

    Attributes:
        worker: Who made it.
        version_read: Version of the weights it was made with.
        version_applied: Version it was applied to; one more came of it. Of a dropped one: the server's version then.
        start: When the worker had the weights.
        end: When the gradient was applied.
        dropped: Whether the server made no use of it.
        error: Of a compressed gradient: norm of what was sent minus what was meant; None if not known.
        residual: Norm of what error feedback keeps back after it; None if not known.
    """

    worker: int
    version_read: int
    version_applied: int
    start: float
    end: float
    dropped: bool = False
    error: float | None = None
    residual: float | None = None

    @property
    def staleness(self) -> int:
        """Return how many versions the weights had gone on meanwhile."""
        return self.version_applied - self.version_read


def updates_of(records: Sequence[Any]) -> list[Update]:
    """Return records as updates, in the order they were applied.

    Args:
        records: Objects, mappings or tuples with worker, version_read, version_applied and if known start, end,
            dropped and, of compressed gradients, error and residual; or tuples of lesson 06, (sequence, worker,
            version_read, version_applied). Without times a unit is one update.

    Raises:
        ConfigError: If a record is none of these.
    """
    found: list[Update] = []
    last: dict[int, float] = {}
    for position, record in enumerate(records):
        words = _words(record, position)
        worker, end = int(words["worker"]), float(words.get("end", position + 1))
        start = float(words.get("start", last.get(worker, 0.0)))
        if worker < 0 or end < start:
            raise ConfigError(
                f"Record {position} has worker {worker}, start {start:g} and end {end:g}; a worker is 0 or more, and "
                "end is not before start."
            )
        last[worker] = end
        versions = int(words["version_read"]), int(words["version_applied"])
        norms = (None if words.get(name) is None else float(words[name]) for name in _NORMS)
        found.append(Update(worker, *versions, start, end, bool(words.get("dropped", False)), *norms))
    first = min((each.start for each in found), default=0.0)
    shifted = [replace(each, start=each.start - first, end=each.end - first) for each in found]
    return sorted(shifted, key=lambda update: update.end)


def missing_of(records: Sequence[Any]) -> list[tuple[int, str]]:
    """Return (records before it, its numbers such as "5" or "5 to 7") of each gap in what numbers the records.

    Args:
        records: As of updates_of; those without a sequence have no gaps.
    """
    numbers = sorted(
        int(words["sequence"]) for words in map(_words, records, range(len(records))) if "sequence" in words
    )
    gaps = [
        (before + 1, after - 1, at) for at, (before, after) in enumerate(pairwise(numbers), 1) if after > before + 1
    ]
    return [(at, f"{first} to {last}" if last > first else str(first)) for first, last, at in gaps]


def are_timed(records: Sequence[Any]) -> bool:
    """Return whether the records say when each gradient was begun and applied."""
    return all({"start", "end"} <= set(_words(record, position)) for position, record in enumerate(records))


def _words(record: Any, position: int) -> Mapping[str, Any]:
    if isinstance(record, Mapping):
        words = dict(record)
    elif isinstance(record, tuple | list) and len(record) in (4, 5) and not hasattr(record, "_fields"):
        words = dict(zip(_NAMES if len(record) == 5 else ("sequence", *_NAMES), record, strict=False))
    else:
        words = {name: getattr(record, name) for name in (*_NAMES, *_MORE) if hasattr(record, name)}
    missing = [name for name in _NAMES[:3] if name not in words]
    if missing:
        raise ConfigError(
            f"Record {position} is {record!r:.60}, without {', '.join(missing)}; an update has worker, version_read, "
            "version_applied and, if known, start and end."
        )
    return words


def draws(seed: int) -> Iterator[float]:
    """Yield numbers of 0 to 1 that are the same everywhere (mulberry32, as the page's program has it)."""
    mask, state = 0xFFFFFFFF, seed & 0xFFFFFFFF
    while True:
        state = (state + 0x6D2B79F5) & mask
        mixed = (state ^ (state >> 15)) * (state | 1) & mask
        mixed ^= (mixed + ((mixed ^ (mixed >> 7)) * (mixed | 61) & mask)) & mask
        yield ((mixed ^ (mixed >> 14)) & mask) / 4294967296


def simulate(
    num_workers: int,
    bound: int | str,
    straggler: float,
    delay: float,
    seed: int,
    count: int = 60,
    drop: int | None = None,
    law: str = "±25 %",
) -> list[Update]:
    """Return the first updates of a server and its workers; computing a gradient takes about 1.

    Two policies lie between the synchronous and the asynchronous server. Stale synchronous parallel (Ho et al. 2013)
    compares the workers' own counts of pushes. Bounded delay (Li et al. 2014, "Scaling distributed machine learning
    with the parameter server": a task is blocked until all tasks from before the maximal delay are done) counts tasks,
    here the gradients of all workers together, in the order they were begun.

    Args:
        num_workers: Workers.
        bound: How many pushes a worker may be ahead of the slowest; "async": any number; "sync": all wait for all, and
            their gradients make one version; "delay 4": no gradient is begun before all are in that were begun more
            than 4 before it. Of N workers none is then staler than d + min(d, N - 1).
        straggler: How many times slower worker 0 is.
        delay: Of the network, each way.
        seed: For the computing times.
        count: Updates that are applied; dropped gradients come on top.
        drop: A gradient staler than this is dropped; None: none is.
        law: Of the computing times: "equal", "±25 %" (uniform) or "exponential".
    """
    numbers = draws(seed)
    clock, version, sync = [0] * num_workers, 0, bound == "sync"
    most = float("inf") if isinstance(bound, str) else bound
    furthest = delay_of(bound)
    applied, stalest = 0, float("inf") if drop is None else drop

    busy: list[tuple[float, int, float, int, int]] = []
    waiting = list(range(num_workers))
    updates: list[Update] = []
    begun = 0

    def begin(start: float) -> None:
        nonlocal begun, waiting
        everybody, still = not busy, []
        for worker in waiting:  # in the order they came, or one might wait for ever
            oldest = min((number for *_, number in busy), default=begun)
            if everybody if sync else lead(clock[worker], clock) <= most and begun - oldest <= furthest:
                drawn = next(numbers)
                takes = {"equal": 1.0, "exponential": -math.log(1 - drawn)}.get(law, 0.75 + 0.5 * drawn)
                lasts = (straggler if worker == 0 else 1) * takes + delay
                busy.append((start + lasts, worker, start, version, begun))
                begun += 1
            else:
                still.append(worker)
        waiting = still

    begin(0.0)
    while applied < count:
        end, worker, start, read, _ = now = min(busy)
        busy.remove(now)
        late = version - read > stalest
        updates.append(Update(worker, read, version, start, end, late))
        clock[worker] += 1
        waiting.append(worker)
        applied += not late
        version += not busy if sync else not late
        begin(end + delay)
    return updates


def delay_of(bound: int | str) -> float:
    """Return the 4 of "delay 4", infinity for another policy."""
    return float(bound.split()[1]) if isinstance(bound, str) and bound.startswith("delay ") else math.inf


def lead(pushes: int, of_all: Iterable[int]) -> int:
    """Return how many pushes a worker with so many has more than the slowest of all; 0 where nobody is left."""
    return pushes - min(of_all, default=pushes)


def ahead_of(updates: Sequence[Update]) -> list[int]:
    """Return for each gradient how many pushes its worker had more than the slowest when it was begun."""
    found = []
    for update in updates:
        pushed = dict.fromkeys((each.worker for each in updates), 0)
        for each in updates:
            pushed[each.worker] += each.end <= update.start
        found.append(lead(pushed[update.worker], pushed.values()))
    return found


def losses(
    updates: Sequence[Update], num_workers: int, lr: float, seed: int, divided: str = "workers"
) -> list[tuple[float, int, float]]:
    """Return (end, updates so far, loss) of each version that these updates make of two weights on a slope.

    The loss is (w0**2 + 0.1 * w1**2) / 2 from (3, 3) on, gradients are noisy. Several gradients of one version, as a
    synchronous server applies them, count with their mean.

    Args:
        updates: In the order they are applied; dropped ones count for nothing.
        num_workers: Workers.
        lr: Learning rate.
        seed: Of the noise.
        divided: By what a gradient's rate is divided: "nothing", "workers" (their number) or "staleness" (its own, if
            that is more than 1).
    """
    numbers, steep, history = draws(seed + 1000), (1.0, 0.1), {0: (3.0, 3.0)}
    updates = [update for update in updates if not update.dropped]
    sizes = Counter(update.version_applied for update in updates)
    weights, found = history[0], []
    for number, update in enumerate(updates):
        together = sizes[update.version_applied]
        divisors = {"workers": num_workers, "staleness": max(1, update.staleness)}
        rate = lr / (together if together > 1 else divisors.get(divided, 1))
        old = history[update.version_read]
        first, second = (w - rate * (h * o + next(numbers) - 0.5) for w, h, o in zip(weights, steep, old, strict=True))
        weights = history[update.version_applied + 1] = (first, second)
        after = updates[number + 1] if number + 1 < len(updates) else None
        if after is None or after.version_applied != update.version_applied:
            found.append((update.end, number + 1, (first**2 + 0.1 * second**2) / 2))
    return found
