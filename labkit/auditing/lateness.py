"""Whether a run ends the same whoever is late: ranks are paused at calls or steps, and the values are compared."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations
from types import TracebackType

import torch

from labkit.auditing.bits import same_bits
from labkit.auditing.origins import decided_by_chance, keeps_first
from labkit.auditing.probes import Place, Probes
from labkit.auditing.seen import Seen
from labkit.errors import LabkitError, RankFailed, RunError
from labkit.failures.records import Pause

MOST_RANKS = 8
"""So many ranks are late in turn, spread over the world."""
MOST_IN_PAIRS = 5
"""So many of them are late two at a time, too: each with each other."""
_TIMES = 10
"""So many times as long as the run takes, at least, is a rank late: longer than anything that others do meanwhile."""
_SMALL = 8
"""Elements of what may be a time that ranks tell each other."""
_COMPARED = ("parameter", "input", "loss", "gradient", "sent")
_ANSWERED = "answered"
_OUTSIDE = ("site-packages", "dist-packages", "/labkit/", "<frozen")

Pauses = tuple[Pause, ...]
Rerun = Callable[[Pauses], Probes]
"""Runs the program again with these pauses, and returns its values; raises RunError where it fails."""


@dataclass(frozen=True)
class Late:
    """The fewest delays with which a run was seen to end otherwise.

    Attributes:
        pauses: Who is late, at how many of its calls or steps, and by how much.
        error: How the run failed, "" where it came to its end.
        place: The first value that differs, None where the run failed.
        other: The rank on which it does.
        by: How far, at most.
        source: The program's line, as near as the record and its text know it.
        runs: How many runs it took.
    """

    pauses: Pauses
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


def schedules(seen: Seen, calls: dict[int, int]) -> list[Pauses]:
    """Return who is to be late: each rank at all its calls, the first and the last at all their steps, and pairs.

    Args:
        seen: What was seen of the run with nobody late.
        calls: Rank -> how many calls it made.
    """
    seconds = float(f"1e{math.ceil(math.log10(_TIMES * max(100, seen.timeline.makespan_ns) / 1e9))}")
    size = seen.world_size
    at_calls = {
        rank: Pause(rank, seconds, calls[rank], call=1) for rank in _spread(size, MOST_RANKS) if calls.get(rank)
    }
    steps = {rank: seen.num_steps.get(rank, 0) for rank in (0, size - 1)}
    alone = [*at_calls.values(), *(Pause(rank, seconds, number, step=1) for rank, number in steps.items() if number)]
    some = [at_calls[rank] for rank in _spread(size, MOST_IN_PAIRS) if rank in at_calls]
    return [(one,) for one in alone] + (list(combinations(some, 2)) if size > 2 else [])


def _spread(size: int, most: int) -> list[int]:
    """Return at most so many ranks, the first and the last among them."""
    most = min(size, most)
    return sorted({round(place * (size - 1) / max(1, most - 1)) for place in range(most)})


def late(base: Probes, rerun: Rerun, seen: Seen, every: list[Pauses], *, reads_clock: bool) -> Late | str:
    """Return the fewest delays with which a run ends otherwise, "" where it ends the same, else why nobody can say.

    Args:
        base: The values of the run with nobody late.
        rerun: Runs it again.
        seen: What was seen of the run with nobody late.
        every: Who is to be late, one after the other.
        reads_clock: Whether the program reads a clock, and so may tell other ranks how long something took.
    """
    small = _SMALL if reads_clock else 0
    by_messages = bool(seen.any_source) and all(seen.any_source.values())
    runs, answers = 0, by_messages

    def ending(pauses: Pauses) -> _Ending | None:
        nonlocal runs, answers
        runs += 1
        try:
            other = rerun(pauses)
        except RunError as error:
            return None if _is_a_time_limit(error) else _Ending(_first_line(error), source=_failed_at(error))
        if by_messages or _parted(base, other, small, (_ANSWERED,)) is not None:
            answers = True
            return None
        return _parted(base, other, small)

    for pauses in every:
        found = ending(pauses)
        if found is not None:
            pauses, found = _fewest(pauses, found, ending)
            return Late(pauses, found.error, found.place, found.rank, found.by, _line(seen, found), runs)
    if answers:
        return "each message or call is answered as it comes: the results of an asynchronous server hang on who is late"
    return ""


def _fewest(pauses: Pauses, found: _Ending, ending: Callable[[Pauses], _Ending | None]) -> tuple[Pauses, _Ending]:
    """Return the pauses of which none can go and none can be halved, and how the run ends with them."""
    number = 0
    while number < len(pauses):
        others, pause = (pauses[:number], pauses[number + 1 :]), pauses[number]
        less: list[Pauses] = [()] if len(pauses) > 1 else []
        if pause.times > 1:
            half = pause.times // 2
            less += [(_part(pause, 0, half),), (_part(pause, half, pause.times - half),)]
        tried = ((others[0] + part + others[1], part) for part in less)
        smaller = next(((some, part, one) for some, part in tried if (one := ending(some)) is not None), None)
        if smaller is None:
            number += 1
            continue
        pauses, part, found = smaller
        number = 0 if not part else number
    return pauses, found


def _part(pause: Pause, skips: int, times: int) -> Pause:
    """Return a part of a pause: so many of its events, after those that it skips."""
    if pause.call is not None:
        return replace(pause, call=pause.call + skips, times=times)
    return replace(pause, step=(pause.step or 1) + skips, times=times)


def _parted(base: Probes, other: Probes, small: int, kinds: tuple[str, ...] = _COMPARED) -> _Ending | None:
    """Return the first value of these kinds that both runs have and that differs by more than rounding explains."""
    for place, values in sorted(base.values.items(), key=lambda item: item[0].step):
        if place.kind not in kinds:
            continue
        for rank, value in sorted(values.items()):
            there = other.values.get(place, {}).get(rank)
            if there is None or same_bits(value, there) or (place.kind == "sent" and value.numel() <= small):
                continue
            by = _farthest(value, there)
            if by is not None and by <= _explained(value):
                continue
            return _Ending("", place, rank, float("inf") if by is None else by, base.sources.get(place, ""))
    return None


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
    """Return where the order got in: where what came is taken, what asks a clock or a file, else what differs."""
    if seen.any_source and not found.error:
        return next(iter(seen.any_source))
    kept = [line for name, source in seen.handlers.items() if (line := keeps_first(source, name))]
    if kept and not found.error:
        return kept[0]
    if found.error and found.source and "called" not in found.error:
        return found.source  # it failed by itself, and not because ranks no longer meet
    sources = [found.source, *(call.source for call in seen.calls), *(step.optimizer_made for step in seen.steps)]
    file = next((source for source in sources if source and "site-packages" not in source), "")
    return decided_by_chance(file) or found.source or file
