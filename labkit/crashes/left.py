"""What crashes leave of a program's files: one run, and a copy of its disk before each file operation."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from labkit.failures.records import KEEPS, Kill
from labkit.failures.settings import Disk, Restarts
from labkit.simulator.failure_plan import FailurePlan, Kept
from labkit.simulator.state import outside
from labkit.virtual_world import VirtualWorld
from labkit.worlds import run

Files = dict[str, bytes | None]
"""Path below the program's folder -> contents, None for a folder."""


@dataclass(frozen=True)
class Left:
    """What a crash leaves.

    Attributes:
        rank: The rank that was about to make a file operation.
        op: Which: "replace".
        path: On what, below the program's folder.
        how: "kill", or what a power cut keeps: "nothing", "names", "torn".
        files: What is there.
        numbers: Path -> number of its inode, -1 of a symbolic link; told of kills alone.
    """

    rank: int
    op: str
    path: str
    how: str
    files: Files
    numbers: dict[str, int] = field(default_factory=dict)


def what_crashes_leave(
    fn: Callable[..., object],
    *args: object,
    on: VirtualWorld,
    folder: Path,
    init: bool = True,
    timeout: float = 60.0,
    kill: Kill | None = None,
) -> list[Left]:
    """Return what a crash before each file operation leaves, from one run.

    :func:`crash_points` runs the program anew for each crash and restarts it; this asks for the files alone.

    Args:
        fn: Runs on every rank.
        *args: Its arguments.
        on: A virtual world without failures.
        folder: The disk of all ranks, in which they begin.
        init: Whether ranks have a process group.
        timeout: Seconds of real time that the run may take.
        kill: A kill injected into the run, after which all ranks are started again.

    Raises:
        RunError: If the program fails.
    """
    found: list[Left] = []
    told: list[Kept] = []

    def watch(rank: int, kind: str, op: str, path: str) -> None:
        if kind == "file":
            (disk,) = told[0].disks
            with outside():
                now = _now(folder)
                found.append(Left(rank, op, path, "kill", now, _numbers(folder, now)))
                found.extend(Left(rank, op, path, keeps, disk.would_leave(keeps)) for keeps in KEEPS)

    failures, most = ((), 0) if kill is None else ((kill,), 1)
    world = replace(on, failure_plan=FailurePlan(failures, Restarts(most), Disk(folder), watch, told=told.append))
    run(fn, *args, on=world, init=init, echo=False, timeout=timeout)
    return found


def put(files: Files, folder: Path) -> None:
    """Write files into an empty folder."""
    for path, data in files.items():
        if data is None:
            (folder / path).mkdir(parents=True, exist_ok=True)
        else:
            (folder / path).write_bytes(data)


def _now(folder: Path) -> Files:
    found: Files = {"": None}
    for where, folders, files in os.walk(folder):
        found |= {os.path.relpath(Path(where, name), folder): None for name in folders}
        found |= {os.path.relpath(Path(where, name), folder): Path(where, name).read_bytes() for name in files}
    return found


def _numbers(folder: Path, files: Files) -> dict[str, int]:
    there = {path: folder / path for path in files}
    return {path: -1 if each.is_symlink() else each.lstat().st_ino for path, each in there.items()}
