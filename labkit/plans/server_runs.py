"""Runs of a parameter server as the staleness view draws them: from records, from what a run left behind, simulated."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from labkit.errors import ConfigError
from labkit.plans.staleness import Update, are_timed, missing_of, updates_of
from labkit.timeline.timeline import Timeline

_MOST_UPDATES, _MOST_RUNS, _MOST_POINTS = 400, 6, 200
_SPAN = re.compile(r"version (\d+)")


@dataclass(frozen=True)
class ServerRun:
    """One run.

    Attributes:
        name: Its name.
        updates: In the order they were applied, or dropped.
        timed: Whether their times are known; else a unit is one update.
        losses: (time, updates so far, loss), or empty.
        gaps: (time, numbers) where the record lacks updates.
        sent: Bytes that workers sent to the server, 0 if not known.
    """

    name: str
    updates: tuple[Update, ...]
    timed: bool
    losses: tuple[tuple[float, int, float], ...] = ()
    gaps: tuple[tuple[float, str], ...] = ()
    sent: int = 0

    def as_data(self) -> dict[str, Any]:
        """Return it as the program in the page reads it."""
        rows: list[list[Any]] = [
            [u.worker, u.version_read, u.version_applied, _short(u.start), _short(u.end), *[1] * u.dropped]
            for u in self.updates
        ]
        step = -(-len(self.losses) // _MOST_POINTS) or 1
        points = [[_short(time), number, _short(loss)] for time, number, loss in self.losses[::step]]
        data: dict[str, Any] = {"name": self.name, "updates": rows, "timed": self.timed}
        data |= {"losses": points} if points else {}
        norms = {name: [getattr(update, name) for update in self.updates] for name in ("error", "residual")}
        known = {name: [_short(v) for v in values] for name, values in norms.items() if None not in values}
        data |= {"norms": known} if known else {}
        data |= {"gaps": [[_short(time), numbers] for time, numbers in self.gaps]} if self.gaps else {}
        return data | ({"sent": self.sent} if self.sent else {})


def read_runs(given: Any) -> list[ServerRun]:
    """Return what was given as runs.

    Args:
        given: One run or a mapping of names to runs. A run is a list of records (see updates_of); or an object with
            such a list as `updates` and, if known, `seen` with seconds, version and loss; or what labkit.run returned,
            whose first result with `updates` is taken, with times from the spans "version 0", "version 1", ... in which
            worker w computed on rank w + 1; a span whose gradient is in no record was dropped.

    Raises:
        ConfigError: If there are no updates or too many, too many runs, or a record is none.
    """
    named = given if isinstance(given, Mapping) else {"this run": given}
    if not 0 < len(named) <= _MOST_RUNS:
        raise ConfigError(f"{len(named)} runs were given; 1 to {_MOST_RUNS} are shown on one axis.")
    return [_read(str(name), each) for name, each in named.items()]


def _read(name: str, given: Any) -> ServerRun:
    results, timeline = getattr(given, "results", None), getattr(given, "timeline", None)
    if results is not None:
        left = [each for each in results if hasattr(each, "updates")]
        if not left:
            raise ConfigError(f"No rank of {name} returned a record of updates; return the server's record.")
        given = left[0]
    records = getattr(given, "updates", given)
    found = updates_of(records)
    if not 0 < len(found) <= _MOST_UPDATES:
        raise ConfigError(f"{len(found)} updates were given; 1 to {_MOST_UPDATES} are shown.")
    timed = are_timed(records)
    if not timed and timeline is not None and (with_times := _times_from(timeline, found)):
        found, timed = with_times, True
    applied = [update for update in found if not update.dropped]
    gaps = tuple(((applied[at - 1].end + applied[at].end) / 2, numbers) for at, numbers in missing_of(records))
    asked = (
        [span for span in timeline.rows() if span.kind.startswith("rpc_") and span.rank] if timeline is not None else []
    )
    sent = sum(span.bytes for span in asked if span.kind != "rpc_serve")
    seen = sorted(getattr(given, "seen", ()), key=lambda each: float(each.seconds))
    losses = tuple(
        (float(each.seconds), sum(update.version_applied < each.version for update in applied), float(each.loss))
        for each in seen
    )
    return ServerRun(name, tuple(found), timed, losses, gaps, sent)


def _times_from(timeline: Timeline, updates: Sequence[Update]) -> list[Update]:
    """Return the updates with the times of the spans in which their gradients were made; [] if they do not match.

    A span before that of a worker's next update, or after its last, made a gradient that the server dropped.
    """
    spans: dict[int, list[tuple[int, int, int]]] = {}
    for span in sorted(timeline.rows(), key=lambda span: span.start_ns):
        if span.kind == "span" and (match := _SPAN.fullmatch(span.name)):
            spans.setdefault(span.rank - 1, []).append((int(match[1]), span.start_ns, span.end_ns))
    first = min((start for each in spans.values() for _, start, _ in each), default=0)
    found = []
    for update in updates:
        mine = spans.get(update.worker, [])
        while mine:
            version, start, end = mine.pop(0)
            times = (start - first) / 1e9, (end - first) / 1e9
            if version == update.version_read:
                found.append(replace(update, start=times[0], end=times[1]))
                break
            found.append(Update(update.worker, version, version, *times, dropped=True))
        else:
            return []
    for worker, mine in spans.items():
        found += [Update(worker, v, v, (a - first) / 1e9, (b - first) / 1e9, dropped=True) for v, a, b in mine]
    found.sort(key=lambda update: update.end)
    until = {
        update.version_applied: update.end for update in found if not update.dropped
    }  # the last one makes the next

    def then(update: Update) -> int:
        return max((version + 1 for version, end in until.items() if end <= update.end), default=update.version_read)

    return [replace(each, version_applied=then(each)) if each.dropped else each for each in found]


def _short(value: float) -> float:
    return float(f"{value:.6g}")
