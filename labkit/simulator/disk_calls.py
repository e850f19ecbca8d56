"""What programs on virtual ranks call to reach files: counted, in virtual time, on the disk of the run.

Contents go to real files as they would from a process: what Python still buffers is lost when its rank is killed. What
C code writes by itself, without Python's calls, is not seen, and counts as synced. A rank lets those that stand earlier
in time go first, so a program that waits until a file is there finds it.
"""

# Paths are text here: each is compared with a folder's, and handed on as it came.
# ruff: noqa: PTH100, PTH109, PTH117, PTH118, PTH119

from __future__ import annotations

import builtins
import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from labkit.failures.settings import Disk
from labkit.simulator.disk import VirtualDisk
from labkit.simulator.disk_file import opener
from labkit.simulator.record import Row
from labkit.simulator.state import VirtualRank, current_rank, outside
from labkit.timeline.span import Lane

_real_open = builtins.open


class DiskCalls:
    """The calls of one run on its disks.

    Attributes:
        disks: One for each node, or one for all.
        silent: Ranks that were ended: what they still do reaches no file.
        node_of: Returns the node of a rank.
    """

    def __init__(self, about: Disk, roots: list[str], node_of: Callable[[int], int]) -> None:
        """Stand before disks in these folders.

        Args:
            about: Their figures.
            roots: One folder for each node, or one for all.
            node_of: Returns the node of a rank.
        """
        self._about, self.node_of = about, node_of
        self.disks = [VirtualDisk(root) for root in roots]
        self.silent: set[int] = set()
        self._opened: dict[int, tuple[int, str]] = {}  # file descriptor -> inode and path

    def disk_of(self, rank: int) -> VirtualDisk:
        """Return the disk that a rank writes to."""
        return self.disks[self.node_of(rank) if len(self.disks) > 1 else 0]

    def lose_power(self, node: int, keeps: str, *, alone: bool) -> None:
        """Leave on the disk of a node what a power cut leaves; alone says whether no other node shares it."""
        with outside():
            self.disks[node if len(self.disks) > 1 else 0].lose_power(None if alone else node, keeps)

    def fill(self, node: int) -> None:
        """Let nothing more fit on the disk of a node."""
        self.disks[node if len(self.disks) > 1 else 0].is_full = True

    # ---- one operation

    def looks(self, path: Any, folder: int | None = None) -> None:
        """Let those that stand earlier in time go first, where a rank looks at its disk.

        Not at a source: Python looks at those for a traceback, and torch holds a lock of the process meanwhile.
        """
        rank = current_rank()
        if isinstance(path, str) and path.endswith(".py"):
            return
        if rank is not None and self.place(rank, path, folder) is not None:
            rank.turn()
            rank.spend(max(1, round(self._about.latency_s * 1e9)))

    def place(self, rank: VirtualRank, path: Any, folder: int | None = None) -> str | None:
        """Return the absolute path of something on the rank's disk, None for what lies elsewhere."""
        if isinstance(path, int):
            ino, name = self._opened.get(path, (0, ""))
            with outside():
                return name if ino and _inode(path) == ino else None
        text = os.fspath(path)
        if isinstance(text, bytes):
            text = os.fsdecode(text)
        with outside():
            if folder is not None and not os.path.isabs(text):
                text = os.path.join(self._opened.get(folder, (0, ""))[1] or os.getcwd(), text)
            folders, name = os.path.split(os.path.abspath(text))
            text = os.path.join(os.path.realpath(folders), name)
        return text if self.disk_of(rank.rank).holds(text) else None

    def begins(self, rank: VirtualRank, op: str, path: str) -> VirtualDisk:
        """Let an operation come: all that is earlier has happened, and it is counted; return the disk.

        Raises:
            OSError: If something is to be written, and the disk is full.
        """
        rank.turn()
        disk = self.disk_of(rank.rank)
        rank.simulation.trial.file(rank, op, os.path.relpath(path, disk.root))
        if disk.is_full and op in ("open", "write", "mkdir", "link"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return disk

    def took(self, rank: VirtualRank, op: str, path: str, num_bytes: int = 0) -> None:
        """Let the time of an operation pass."""
        about, begin_ns = self._about, rank.now_ns
        seconds = about.latency_s + num_bytes / about.bytes_per_second + (about.fsync_s if op == "fsync" else 0.0)
        rank.spend(max(1, round(seconds * 1e9)))
        name = f"{op} {os.path.basename(path)}"
        rank.record.add(Row(Lane.HOST, begin_ns, rank.now_ns, name, "file", num_bytes))

    def note(self, descriptor: int, path: str) -> None:
        """Remember what a file descriptor stands for."""
        with outside():
            self._opened[descriptor] = (_inode(descriptor), path)

    def may_go_on(self, rank: VirtualRank) -> None:
        """Raise Abandoned where the run is over."""
        rank.simulation.scheduler.check()

    # ---- calls that name files

    def naming(self, real: Callable[..., Any], op: str, num_names: int) -> Callable[..., Any]:
        """Return a call of os that makes, moves or removes names."""

        def call(*args: Any, **kwargs: Any) -> Any:
            rank = current_rank()
            if rank is None:
                return real(*args, **kwargs)
            self.may_go_on(rank)
            keys = ("src_dir_fd", "dst_dir_fd") if num_names == 2 else ("dir_fd",)
            names = args[1:2] if real is _real["symlink"] else args[:num_names]
            places = [self.place(rank, name, kwargs.get(key)) for name, key in zip(names, keys, strict=False)]
            inside = [place for place in places if place is not None]
            if not inside:
                return real(*args, **kwargs)
            disk = self.begins(rank, op, inside[-1])
            with outside():
                for place in inside:
                    disk.will_name(place)
                result = real(*args, **kwargs)
                if op == "mkdir":
                    disk.was_made(inside[0], self.node_of(rank.rank))
            self.took(rank, op, inside[-1])
            return result

        return call

    def looking(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """Return a call of os that looks at names."""

        def call(path: Any = ".", *args: Any, **kwargs: Any) -> Any:
            if current_rank() is not None and path is not None:
                self.looks(path, kwargs.get("dir_fd"))
            return real(path, *args, **kwargs)

        return call

    def syncing(self, real: Callable[[int], None]) -> Callable[[int], None]:
        """Return os.fsync."""

        def fsync(file: Any, /) -> None:
            rank = current_rank()
            descriptor = file if isinstance(file, int) else file.fileno()
            path = None if rank is None else self.place(rank, descriptor)
            if rank is None or path is None:
                real(descriptor)
                return
            self.may_go_on(rank)
            disk = self.begins(rank, "fsync", path)
            with outside():  # the model is what a power cut leaves; this host's own disk need not be waited for
                disk.sync(path)
            self.took(rank, "fsync", path)

        return fsync

    def os_open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        """Stand for os.open."""
        rank, real = current_rank(), _real["open"]
        place = None if rank is None else self.place(rank, path, dir_fd)
        if rank is None or place is None:
            return int(real(path, flags, mode, dir_fd=dir_fd))
        self.may_go_on(rank)
        self.opening(rank, place, makes=bool(flags & os.O_CREAT), empties=bool(flags & os.O_TRUNC))
        with outside():
            is_new = not os.path.lexists(place)
            descriptor = int(real(path, flags, mode, dir_fd=dir_fd))
        self.opened(rank, place, descriptor, is_new=is_new)
        return descriptor

    def opening(self, rank: VirtualRank, place: str, *, makes: bool, empties: bool) -> None:
        """Let a file be opened: counted where it is made or emptied."""
        with outside():
            there = os.path.lexists(place)
        if (makes and not there) or (empties and there):
            disk = self.begins(rank, "open", place)
            with outside():
                disk.will_name(place)
                disk.will_change(place, self.node_of(rank.rank))
        else:
            rank.turn()

    def opened(self, rank: VirtualRank, place: str, descriptor: int, *, is_new: bool) -> None:
        """Note that a file was opened."""
        self.note(descriptor, place)
        if is_new:
            with outside():
                self.disk_of(rank.rank).was_made(place, self.node_of(rank.rank))
        self.took(rank, "open", place)

    def writing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """Return a call of os that writes to a file descriptor or shortens what it stands for."""
        op = "truncate" if "truncate" in real.__name__ else "write"

        def call(descriptor: Any, *args: Any, **kwargs: Any) -> Any:
            rank = current_rank()
            path = None if rank is None else self.place(rank, descriptor)
            if rank is None or path is None:
                return real(descriptor, *args, **kwargs)
            self.may_go_on(rank)
            disk = self.begins(rank, op, path)
            with outside():
                disk.will_change(path, self.node_of(rank.rank))
                done = real(descriptor, *args, **kwargs)
            self.took(rank, op, path, done or 0)
            return done

        return call

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let what ranks call of Python and of torch come here."""
        python: Any = os
        fakes: dict[str, Any] = {"open": self.os_open, "fsync": self.syncing(_real["fsync"])}
        fakes["fdatasync"] = self.syncing(_real["fdatasync"])
        for name, op, count in _NAMING:
            fakes[name] = self.naming(_real[name], op, count)
        fakes |= {name: self.looking(_real[name]) for name in _LOOKING}
        fakes |= {name: self.writing(_real[name]) for name in _WRITING if name in _real}
        opens, real_save = opener(self), torch.save

        def save(obj: object, f: Any, *args: Any, **kwargs: Any) -> None:
            rank = current_rank()
            if rank is None or not isinstance(f, str | os.PathLike) or self.place(rank, f) is None:
                real_save(obj, f, *args, **kwargs)
                return
            with opens(f, "wb") as file:
                real_save(obj, file, *args, **kwargs)

        places = [(python, name, fake) for name, fake in fakes.items()]
        places += [
            (builtins, "open", opens),
            (io, "open", opens),
            (torch, "save", save),
            (torch.serialization, "save", save),
        ]
        before = [(owner, name, getattr(owner, name)) for owner, name, _ in places]
        for owner, name, fake in places:
            setattr(owner, name, fake)
        try:
            yield
        finally:
            for owner, name, real in before:
                setattr(owner, name, real)


_NAMING = (
    ("replace", "replace", 2), ("rename", "replace", 2), ("unlink", "unlink", 1), ("remove", "unlink", 1),
    ("mkdir", "mkdir", 1), ("rmdir", "rmdir", 1), ("link", "link", 2), ("symlink", "link", 1),
)  # fmt: skip
_LOOKING = ("stat", "lstat", "listdir", "scandir", "access")
_WRITING = ("write", "pwrite", "sendfile", "ftruncate", "truncate")
_real: dict[str, Any] = {
    name: getattr(os, name)
    for name in ("open", "fsync", "fdatasync", *(name for name, _, _ in _NAMING), *_LOOKING, *_WRITING)
    if hasattr(os, name)
}
_real.setdefault("fdatasync", os.fsync)


def _inode(descriptor: int) -> int:
    try:
        return os.fstat(descriptor).st_ino
    except OSError:
        return 0
