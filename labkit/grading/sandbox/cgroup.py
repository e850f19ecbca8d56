"""A control group for what one sandbox runs, where the system lets us make one: memory and tasks of the whole tree.

That is as root with cgroup v1, or with v2 where the memory controller is handed down to our own group (a systemd scope
with ``Delegate=yes`` whose ``cgroup.subtree_control`` names it). Elsewhere `MemoryWatch` alone holds the limit.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_ENDING_SECONDS = 2.0
_serials = itertools.count()


class Cgroup:
    """A new control group, or none at all where none can be had.

    Args:
        memory_bytes: Memory of all its processes together, page cache and tmpfs included.
        num_tasks: Its processes and threads.
    """

    def __init__(self, memory_bytes: int, num_tasks: int) -> None:
        self.folders: tuple[Path, ...] = ()
        name = f"labkit-{os.getpid()}-{next(_serials)}"
        made: list[Path] = []
        for parent, limits in _own_groups(memory_bytes, num_tasks):
            folder = parent / name
            _remove_stale(parent)
            try:
                folder.mkdir()
                made.append(folder)
                for file, value in limits:
                    if not (folder / file).exists():
                        raise FileNotFoundError(file)
                    (folder / file).write_text(str(value))
            except OSError:
                if folder in made:
                    made.remove(folder)
                    _remove(folder)
        self.folders = tuple(made)

    def enter(self) -> None:
        """Move this process into the group; for a child that is about to run a program."""
        for folder in self.folders:
            fd = os.open(f"{folder}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
            os.write(fd, b"0")
            os.close(fd)

    def take(self, pid: int) -> None:
        """Move another process into the group; what it starts from then on is in it."""
        for folder in self.folders:
            (folder / "cgroup.procs").write_text(str(pid))

    def forget(self) -> None:
        """Take out of memory what the group's processes have read, and which names they looked for, there or not.

        Who owns the group may do so, root or not. With v2 the kernel says that it found less than all there could be.
        """
        for folder in self.folders:
            for file, value in (("memory.force_empty", "0"), ("memory.reclaim", str(2**40))):
                with suppress(OSError):
                    if (folder / file).exists():
                        (folder / file).write_text(value)

    def close(self) -> None:
        """Remove the group; its processes have been killed, and take a moment to end."""
        deadline = time.monotonic() + _ENDING_SECONDS
        for folder in self.folders:
            while not _remove(folder) and time.monotonic() < deadline:
                time.sleep(0.005)
        self.folders = ()


def _remove(folder: Path) -> bool:
    """Remove a group; return whether it is gone."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def remove_groups_left_behind() -> None:
    """Remove the groups of graders and workers that were killed before they could."""
    for parent, _ in _own_groups(0, 0):
        _remove_stale(parent)


def _remove_stale(parent: Path) -> None:
    """Remove the groups that a grader has left which was killed itself."""
    for folder in parent.glob("labkit-*-*"):
        if not Path("/proc", folder.name.split("-")[1]).exists():
            _remove(folder)


def _own_groups(memory_bytes: int, num_tasks: int) -> Iterator[tuple[Path, list[tuple[str, int]]]]:
    """Yield the groups this process is in, and what a group below them is to be told."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            yield _ROOT / "memory" / path[1:], [("memory.limit_in_bytes", memory_bytes)]
        elif controllers == "pids":
            yield _ROOT / "pids" / path[1:], [("pids.max", num_tasks)]
        elif not controllers:
            yield _ROOT / path[1:], [("memory.max", memory_bytes), ("pids.max", num_tasks)]
