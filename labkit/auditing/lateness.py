"""Whether a run ends the same whoever is late: a rank is paused at its calls or steps, and the values are compared."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType

import torch

from labkit.auditing.bits import same_bits
from labkit.auditing.origins import decided_by_chance
from labkit.auditing.probes import Place, Probes
from labkit.auditing.seen import Seen
from labkit.errors import LabkitError, RankFailed, RunError
from labkit.failures.records import Pause

MOST_RANKS = 8
"""So many ranks are late in turn, spread over the world."""
_TIMES = 10
"""So many times as long as the run takes, at least, is a rank late: longer than anything that others do meanwhile."""
_SMALL = 8
"""Elements of what may be a time that ranks tell each other."""
_COMPARED = ("parameter", "input", "loss", "gradient", "sent")
_OUTSIDE = ("site-packages", "dist-packages", "/labkit/", "<frozen")

Rerun = Callable[[tuple[Pause, ...]], Probes]
"""Runs the program again with these pauses, and returns its values; raises RunError where it fails."""


@dataclass(frozen=True)
class Late:
    """The fewest delays with which a run was seen to end otherwise.

    Attributes:
        pause: Who is late, at how many of its calls or steps, and by how much.
        error: How the run failed, "" where it came to its end.
        place: The first value that differs, None where the run failed.
        other: The rank on which it does.
        by: How far, at most.
        source: The program's line, as near as the record and its text know it.
        runs: How many runs it took.
    """

    pause: Pause
    error: str
    place: Place | None
    other: int
    by: float
    source: str
    runs: int


@dataclass(frozen=True)
class _Ending:
    """How a run with a late rank ended otherwise than the run with none."""

    error: str = ""
    place: Place | None = None
    rank: int = -1
    by: float = 0.0
    source: str = ""


def schedules(seen: Seen, calls: dict[int, int]) -> list[Pause]:
    """Return who is to be late: each rank at all its calls, the first and the last rank at all their steps.

    Args:
        seen: What was seen of the run with nobody late.
        calls: Rank -> how many calls it made.
    """
    seconds = float(f"1e{math.ceil(math.log10(_TIMES * max(100, seen.timeline.makespan_ns) / 1e9))}")
    size = seen.world_size
    ranks = sorted({round(place * (size - 1) / max(1, min(size, MOST_RANKS) - 1)) for place in range(MOST_RANKS)})
    found = [Pause(rank, seconds, calls[rank], call=1) for rank in ranks if rank < size and calls.get(rank)]
    steps = {rank: seen.num_steps.get(rank, 0) for rank in (0, size - 1)}
    return found + [Pause(rank, seconds, number, step=1) for rank, number in steps.items() if number]


def late(base: Probes, rerun: Rerun, seen: Seen, every: list[Pause], *, reads_clock: bool) -> Late | str:
    """Return the fewest delays with which a run ends otherwise, "" where it ends the same, else why nobody can say.

    Args:
        base: The values of the run with nobody late.
        rerun: Runs it again.
        seen: What was seen of the run with nobody late.
        every: Who is to be late, one after the other.
        reads_clock: Whether the program reads a clock, and so may tell other ranks how long something took.
    """
    small = _SMALL if reads_clock else 0
    answers = seen.any_source and all(seen.any_source.values())
    runs, rounding = 0, False

    def ending(pause: Pause) -> _Ending | None:
        nonlocal runs, rounding
        runs += 1
        try:
            found = _parted(base, rerun((pause,)), small)
        except RunError as error:
            return None if _is_a_time_limit(error) else _Ending(_first_line(error), source=_failed_at(error))
        rounding = rounding or found == "rounding"
        return None if isinstance(found, str) or answers else found

    for pause in every:
        found = ending(pause)
        if found is None:
            continue
        while pause.times > 1:
            half = pause.times // 2
            parts = _part(pause, 0, half), _part(pause, half, pause.times - half)
            smaller = next(((part, one) for part in parts if (one := ending(part)) is not None), None)
            if smaller is None:
                break
            pause, found = smaller
        return Late(pause, found.error, found.place, found.rank, found.by, _line(seen, found), runs)
    if answers:
        return "each message is answered as it comes: the results of an asynchronous server hang on who is late"
    return ""


def _part(pause: Pause, skips: int, times: int) -> Pause:
    """Return a part of a pause: so many of its events, after those that it skips."""
    if pause.call is not None:
        return replace(pause, call=pause.call + skips, times=times)
    return replace(pause, step=(pause.step or 1) + skips, times=times)


def _parted(base: Probes, other: Probes, small: int) -> _Ending | str:
    """Return the first value that both runs have and that is not the same; "rounding" where no other differs."""
    found = ""
    for place, values in sorted(base.values.items(), key=lambda item: item[0].step):
        if place.kind not in _COMPARED:
            continue
        for rank, value in sorted(values.items()):
            there = other.values.get(place, {}).get(rank)
            if there is None or same_bits(value, there) or (place.kind == "sent" and value.numel() <= small):
                continue
            by = _farthest(value, there)
            if by is not None and by <= _explained(value):
                found = "rounding"
                continue
            return _Ending("", place, rank, float("inf") if by is None else by, base.sources.get(place, ""))
    return found


def _farthest(one: torch.Tensor, other: torch.Tensor) -> float | None:
    if one.shape != other.shape or not one.is_floating_point():
        return None
    gap = (one.double() - other.double()).abs()
    return float(gap.max()) if gap.numel() and not bool(gap.isnan().any()) else None


def _explained(value: torch.Tensor) -> float:
    """Return by how much another order of summation may move a value, steps later too: half of its digits."""
    return float(torch.finfo(value.dtype).eps ** 0.5 * value.double().abs().max())


def _is_a_time_limit(error: RunError) -> bool:
    """Return whether a run ended only because something took longer than the program or the audit allows."""
    first = _first_line(error).lower()
    return "time limit passed" in first or (isinstance(error, RankFailed) and "timed out" in first)


def _first_line(error: LabkitError) -> str:
    first = str(error).splitlines()[0]
    return str(error).split("\n\n")[-1].splitlines()[0] if "Watchdog caught" in first else first


def _failed_at(error: BaseException) -> str:
    """Return the last line of the program in an error's traceback, "" for none."""
    cause: BaseException | None = error.__cause__
    trace: TracebackType | None = None if cause is None else cause.__traceback__
    own = [
        f"{one.filename}:{one.lineno}"
        for one in traceback.extract_tb(trace)
        if not any(part in one.filename for part in _OUTSIDE)
    ]
    return own[-1] if own else ""


def _line(seen: Seen, found: _Ending) -> str:
    """Return where the order got in: a receive from any rank, what asks a clock or a file, else what differs."""
    if seen.any_source and not found.error:
        return next(iter(seen.any_source))
    if found.error and found.source and "called" not in found.error:
        return found.source  # it failed by itself, and not because ranks no longer meet
    sources = [found.source, *(call.source for call in seen.calls), *(step.optimizer_made for step in seen.steps)]
    file = next((source for source in sources if source and "site-packages" not in source), "")
    return decided_by_chance(file) or found.source or file
