"""Python's files on the disk of a run."""

from __future__ import annotations

import builtins
import io
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from labkit.simulator.state import VirtualRank, current_rank, outside

if TYPE_CHECKING:
    from labkit.simulator.disk_calls import DiskCalls


class DiskFile(io.FileIO):
    """A file of a rank, without a buffer: each read and write is one of the operating system's."""

    def __init__(self, calls: DiskCalls, rank: VirtualRank, file: Any, mode: str, opener: Any) -> None:
        """Open it; see io.FileIO."""
        self._calls, self._owner, self._silent, self.path = calls, rank.rank, calls.silent, ""
        place = None if opener is not None else calls.place(rank, file)
        if place is not None and not isinstance(file, int):
            calls.opening(rank, place, makes=mode[0] in "wax", empties=mode[0] == "w")
            with outside():
                is_new = not os.path.lexists(place)
                super().__init__(file, mode)
            calls.opened(rank, place, self.fileno(), is_new=is_new)
        else:
            super().__init__(file, mode, opener=opener)
            place = place or calls.place(rank, self.fileno())
        self.path = place or ""

    def _acts(self) -> VirtualRank | None:
        """Return the rank that acts on it now, None for Python's own clearing up."""
        rank = current_rank()
        return rank if rank is not None and rank.rank == self._owner and self.path else None

    def write(self, data: Any, /) -> int:
        """Write, where the rank has not been ended."""
        if self._owner in self._silent:
            return memoryview(data).nbytes
        rank = self._acts()
        if rank is None:
            return super().write(data)
        disk = self._calls.begins(rank, "write", self.path)
        with outside():
            disk.will_change(self.path, self._calls.node_of(rank.rank))
            done = super().write(data)
        self._calls.took(rank, "write", self.path, done)
        return done

    def truncate(self, size: int | None = None, /) -> int:
        """Shorten the file, where the rank has not been ended."""
        if self._owner in self._silent:
            return size or 0
        rank = self._acts()
        if rank is None:
            return super().truncate(size)
        disk = self._calls.begins(rank, "truncate", self.path)
        with outside():
            disk.will_change(self.path, self._calls.node_of(rank.rank))
            done = super().truncate(size)
        self._calls.took(rank, "truncate", self.path)
        return done

    def readinto(self, buffer: Any, /) -> int:
        """Read into a buffer."""
        done = super().readinto(buffer)
        self._took(done)
        return done

    def readall(self) -> bytes:
        """Read all that is left."""
        done = super().readall()
        self._took(len(done))
        return done

    def _took(self, num_bytes: int) -> None:
        rank = self._acts()
        if rank is not None:
            self._calls.took(rank, "read", self.path, num_bytes)


def opener(calls: DiskCalls) -> Callable[..., Any]:
    """Return what stands for open()."""
    real = builtins.open

    def opens(
        file: Any, mode: str = "r", buffering: int = -1, encoding: Any = None, errors: Any = None, newline: Any = None,
        closefd: bool = True, opener: Any = None,
    ) -> Any:  # fmt: skip
        rank = current_rank()
        if rank is None or calls.place(rank, file) is None or not closefd:
            return real(file, mode, buffering, encoding, errors, newline, closefd, opener)
        calls.may_go_on(rank)
        letters = set(mode)
        if letters - set("rwxab+tU") or len(letters & set("rwxa")) != 1 or len(mode) != len(letters):
            return real(file, mode)  # which says what is wrong with it
        binary, updates = "b" in letters, "+" in letters
        kind = next(letter for letter in "xrwa" if letter in letters)
        raw = DiskFile(calls, rank, file, kind + ("+" if updates else ""), opener)
        if buffering == 0 and binary:
            return raw
        size = io.DEFAULT_BUFFER_SIZE if buffering in (-1, 0, 1) else buffering
        buffered: Any = (
            io.BufferedRandom(raw, size) if updates
            else io.BufferedReader(raw, size) if kind == "r"
            else io.BufferedWriter(raw, size)
        )  # fmt: skip
        if binary:
            return buffered
        text = io.TextIOWrapper(buffered, encoding, errors, newline, buffering == 1)
        text.mode = mode  # type: ignore[misc]
        return text

    return opens
