"""Runs a learner's saving on virtual ranks, and keeps what a crash at each moment would leave of the files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from labkit.errors import RunError
from labkit.exercises.remote_calls.calling import raised_on_virtual_ranks

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
    """

    num_saved: int
    is_between: bool
    what: str
    how: str
    files: dict[str, bytes | None]


def moments(program: Callable[..., Any], *args: Any, num_ranks: int, init: bool) -> list[Moment]:
    """Return the moments of a program that saves, each state of the files once; it says each save by `saved`.

    Raises:
        NotImplementedError: If a stub was called.
        RuntimeError: If it failed in another way, in words.
    """
    from labkit.crashes.left import what_crashes_leave
    from labkit.virtual_world import virtual

    with TemporaryDirectory(prefix="labkit-saves-") as name:
        base = Path(name).resolve()
        (base / FOLDER).mkdir()
        world = virtual(num_ranks, cuda=False)
        try:
            left = what_crashes_leave(program, *args, on=world, folder=base, init=init, timeout=20.0)
        except RunError as error:
            raise raised_on_virtual_ranks(error) from None
    saved, begun, found = [0] * num_ranks, [False] * num_ranks, list[Moment]()
    known: set[tuple[int, bool, str]] = set()
    for each in left:
        is_mark = each.path.startswith(SAVED)
        if is_mark and each.how == "kill":
            saved[each.rank], begun[each.rank] = saved[each.rank] + 1, False
        elif not is_mark:
            begun[each.rank] = True
        files = {
            path.removeprefix(FOLDER).lstrip("/"): data for path, data in each.files.items() if path.startswith(FOLDER)
        }
        is_between = min(saved) == max(saved) and not any(begun)
        what = "after the save" if is_between else f"before '{each.op} {Path(each.path).name}'"
        key = (min(saved), is_between, repr(sorted(files.items())))
        if key not in known:
            known.add(key)
            found.append(Moment(min(saved), is_between, what, each.how, files))
    return found


def saved(number: int, rank: int = 0) -> None:
    """Say on a rank that its save has returned."""
    Path(f"{SAVED}{number}-{rank}").touch()


@contextmanager
def folder_with(files: dict[str, bytes | None]) -> Iterator[Path]:
    """Give a folder with these files."""
    from labkit.crashes.left import put

    with TemporaryDirectory(prefix="labkit-left-") as name:
        put(files, Path(name))
        yield Path(name)
