"""Runs a learner's saving on virtual ranks, and keeps what a crash at each moment would leave of the files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from labkit.errors import RunError
from labkit.exercises.remote_calls.calling import raised_on_virtual_ranks
from labkit.failures.records import Kill

SAVED = "saved-"
"""Begins the name of the file that a rank writes when a save has returned."""
FOLDER = "checkpoints"


Files = dict[str, bytes | None]


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


def moments(program: Callable[..., Any], *args: Any, num_ranks: int, init: bool) -> list[Moment]:
    """Return the moments of a program that saves, each state of the files once; it says each save by `saved`.

    Raises:
        NotImplementedError: If a stub was called.
        RuntimeError: If it failed in another way, in words.
    """
    left = _left(program, *args, num_ranks=num_ranks, init=init)
    operations, has_renamed = 0, False
    saved, begun, found = [0] * num_ranks, [False] * num_ranks, list[Moment]()
    known: set[tuple[int, bool, str]] = set()
    for each in left:
        is_mark = each.path.startswith(SAVED)
        operations += each.rank == 0 and each.how == "kill"
        has_renamed |= each.op == "replace"
        if is_mark and each.how == "kill":
            saved[each.rank], begun[each.rank] = saved[each.rank] + 1, False
        elif not is_mark:
            begun[each.rank] = True
        files = _below(each.files)
        is_between = min(saved) == max(saved) and not any(begun)
        what = "after the save" if is_between else f"before '{each.op} {Path(each.path).name}'"
        key = (min(saved), is_between, repr(sorted(files.items())))
        if key not in known:
            known.add(key)
            found.append(Moment(min(saved), is_between, what, each.how, files, operations, has_renamed))
    return found


def after_restarts(
    program: Callable[..., Any], *args: Any, num_ranks: int, init: bool, every: list[Moment], num_saves: int
) -> list[Moment]:
    """Return what is left where rank 0 is killed in its last save, all start again, and that save has returned.

    Args:
        program: As of `moments`; started again, it goes on with the first save that not all have said (`num_said`).
        *args: Its arguments.
        num_ranks: Ranks of it.
        init: Whether they have a process group.
        every: What `moments` found.
        num_saves: How many saves it makes.

    Raises:
        NotImplementedError: If a stub was called.
        RuntimeError: If it failed in another way, in words.
    """
    ends = [each.num_operations for each in every if each.is_between and each.num_saved == num_saves - 1]
    number, found = max(ends, default=0), list[Moment]()
    while True:
        number += 1
        left = _left(program, *args, num_ranks=num_ranks, init=init, kill=Kill(0, file=number))
        killed = [each for each in left if each.rank == 0 and each.how == "kill"][number - 1]
        if killed.path.startswith(SAVED):
            return found  # the save had returned
        end = max(place for place, each in enumerate(left) if each.path.startswith(SAVED) and each.how == "kill")
        what = f"killed before '{killed.op} {Path(killed.path).name}'"
        for each in left[end : end + 4]:
            if each.how in ("kill", "nothing"):
                found.append(Moment(num_saves, True, what, each.how, _below(each.files)))


def _left(program: Callable[..., Any], *args: Any, num_ranks: int, init: bool, kill: Any = None) -> list[Any]:
    from labkit.crashes.left import what_crashes_leave
    from labkit.virtual_world import virtual

    with TemporaryDirectory(prefix="labkit-saves-") as name:
        base = Path(name).resolve()
        (base / FOLDER).mkdir()
        world = virtual(num_ranks, cuda=False)
        try:
            return what_crashes_leave(program, *args, on=world, folder=base, init=init, kill=kill)
        except RunError as error:
            raise raised_on_virtual_ranks(error) from None


def _below(files: Files) -> Files:
    return {path.removeprefix(FOLDER).lstrip("/"): data for path, data in files.items() if path.startswith(FOLDER)}


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
