"""Runs a learner's saving on virtual ranks, and notes what it does to the files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from labkit.errors import RunError
from labkit.exercises.remote_calls.calling import raised_on_virtual_ranks
from labkit.exercises.when_machines_fail.crash_log import Event, Files
from labkit.exercises.when_machines_fail.moments import FOLDER, SAVED, last_save, moments_in
from labkit.failures.records import Kill

Log = list[Event]


def logs_of(
    program: Callable[..., Any], *args: Any, num_ranks: int, init: bool, num_saves: int, restart: bool
) -> list[Log]:
    """Return what a program that saves does to its files; it says each save by `saved`.

    Args:
        program: Started again, it goes on with the first save that not all have said (`num_said`).
        *args: Its arguments.
        num_ranks: Ranks of it.
        init: Whether they have a process group.
        num_saves: How many saves it makes.
        restart: Whether it is run again for each operation of rank 0's last save, before which that rank is killed.

    Raises:
        NotImplementedError: If a stub was called.
        RuntimeError: If it failed in another way, in words.
    """
    logs = [_log(program, *args, num_ranks=num_ranks, init=init)]
    if restart:
        for number in last_save(logs[0], moments_in(logs[0], num_ranks), num_saves):
            logs.append(_log(program, *args, num_ranks=num_ranks, init=init, kill=Kill(0, file=number)))
    return logs


def _log(program: Callable[..., Any], *args: Any, num_ranks: int, init: bool, kill: Any = None) -> Log:
    from labkit.crashes.left import what_crashes_leave
    from labkit.virtual_world import virtual

    with TemporaryDirectory(prefix="labkit-saves-") as name:
        base = Path(name).resolve()
        (base / FOLDER).mkdir()
        world = virtual(num_ranks, cuda=False)
        try:
            left = what_crashes_leave(program, *args, on=world, folder=base, init=init, kill=kill)
        except RunError as error:
            raise raised_on_virtual_ranks(error) from None
    return [Event(each.rank, each.op, each.path, each.files, each.numbers) for each in left if each.how == "kill"]


def num_said(num_ranks: int) -> int:
    """Return how many saves all ranks have said, in attempts before this one."""
    return min(len(list(Path().glob(f"{SAVED}*-{rank}"))) for rank in range(num_ranks))


def saved(number: int, rank: int = 0) -> None:
    """Say on a rank that its save has returned."""
    Path(f"{SAVED}{number}-{rank}").touch()


@contextmanager
def folder_with(files: Files) -> Iterator[Path]:
    """Give a folder with these files, for code that runs beside it: what is written to no folder is no learner's."""
    from labkit.crashes.left import put

    with TemporaryDirectory(prefix="labkit-left-") as name, chdir(name):
        folder = Path(name) / FOLDER
        folder.mkdir()
        put(files, folder)
        yield folder
