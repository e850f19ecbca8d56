"""The moments at which a program that saves may crash: worked out from what it did, by the rank and by the judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import torch
from torch import Tensor

from labkit.exercises.when_machines_fail.crash_log import Event, Files, would_leave

SAVED = "saved-"
"""Begins the name of the file that a rank writes when a save has returned."""
FOLDER = "checkpoints"


@dataclass(frozen=True)
class Moment:
    """A moment, and the files that a crash then leaves of the folder.

    Attributes:
        num_saved: How many saves had returned, of the rank that had done fewest.
        is_between: Whether every rank had done as many, and none had begun the next.
        what: "before 'replace 4.tmp'": what was about to be done.
        how: "kill", "nothing", "names" or "torn".
        files: Path below the folder -> contents, None for a folder.
        num_operations: How many file operations rank 0 had made or was about to make.
        has_renamed: Whether a rank had renamed a file or was about to.
    """

    num_saved: int
    is_between: bool
    what: str
    how: str
    files: Files
    num_operations: int = 0
    has_renamed: bool = False


def moments_in(log: Sequence[Event], num_ranks: int) -> list[Moment]:
    """Return the moments of a run, each state of the files once."""
    operations, has_renamed = 0, False
    saved, begun, found = [0] * num_ranks, [False] * num_ranks, list[Moment]()
    known: set[tuple[int, bool, str]] = set()
    for each, left in zip(log, would_leave(log), strict=True):
        operations += each.rank == 0
        has_renamed |= each.op == "replace"
        for how, files in left.items():
            if not each.path.startswith(SAVED):
                begun[each.rank] = True
            elif how == "kill":
                saved[each.rank], begun[each.rank] = saved[each.rank] + 1, False
            is_between = min(saved) == max(saved) and not any(begun)
            what = "after the save" if is_between else f"before {_words(each)}"
            below = _below(files)
            key = (min(saved), is_between, repr(sorted(below.items())))
            if key not in known:
                known.add(key)
                found.append(Moment(min(saved), is_between, what, how, below, operations, has_renamed))
    return found


def last_save(log: Sequence[Event], every: Sequence[Moment], num_saves: int) -> range:
    """Return the numbers of rank 0's operations in its last save, counted from 1."""
    begin = max(
        (each.num_operations for each in every if each.is_between and each.num_saved == num_saves - 1), default=0
    )
    mine = [each for each in log if each.rank == 0][begin:]
    return range(begin + 1, begin + 1 + next((n for n, each in enumerate(mine) if each.path.startswith(SAVED)), 0))


def moments_after_restart(log: Sequence[Event], number: int, num_saves: int) -> list[Moment]:
    """Return what is left where rank 0 was killed at an operation, all started again, and the last save has returned.

    Args:
        log: Of such a run.
        number: Of rank 0's operations, counted from 1: the one that did not happen.
        num_saves: How many saves there are.
    """
    mine = [place for place, each in enumerate(log) if each.rank == 0]
    marks = [place for place, each in enumerate(log) if each.path.startswith(SAVED)]
    if number > len(mine) or not marks:
        return []
    what, left = f"killed before {_words(log[mine[number - 1]])}", would_leave(log, mine[number - 1])[marks[-1]]
    return [Moment(num_saves, True, what, how, _below(left[how])) for how in ("kill", "nothing")]


def _words(event: Event) -> str:
    return f"'{event.op} {PurePosixPath(event.path).name}'"


def _below(files: Files) -> Files:
    return {path.removeprefix(FOLDER).lstrip("/"): data for path, data in files.items() if path.startswith(FOLDER)}


def all_moments(
    logs: Sequence[Sequence[Event]], num_ranks: int, num_saves: int, *, restart: bool
) -> list[Moment] | None:
    """Return the moments of a case: those of its run, and those of each run in which rank 0 was killed.

    Args:
        logs: Of the run, then, where the last save is broken off and made again, of one run for each of its operations.
        num_ranks: How many save.
        num_saves: How often.
        restart: Whether there are such runs.

    Returns:
        None where there are more or fewer logs than that.
    """
    if not logs or not all(0 <= each.rank < num_ranks for log in logs for each in log):
        return None
    every = moments_in(logs[0], num_ranks)
    numbers = last_save(logs[0], every, num_saves) if restart else range(0)
    if len(logs) != 1 + len(numbers):
        return None
    for number, log in zip(numbers, logs[1:], strict=True):
        every += moments_after_restart(log, number, num_saves)
    return every


def is_in(files: Files, value: Tensor) -> bool:
    """Return whether one of the files holds a tensor's numbers as they lie in memory, as torch.save writes them."""
    wanted = bytes(value.detach().contiguous().view(torch.uint8).flatten().tolist())
    return any(wanted in data for data in files.values() if data)
