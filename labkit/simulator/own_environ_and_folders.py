"""Where a process stands and what the C library knows of its environment, changed with the rank.

``os.chdir`` and ``os.environ`` reach the operating system's process, of which ranks are threads. While a run goes on
each rank keeps a folder and a table of its own, and what C code asks for is put in place before the rank goes on.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from labkit.simulator.state import current_rank

_real_chdir: Callable[[Any], None] = os.chdir


def _find_putenv() -> Callable[[Any], int] | None:
    try:
        found: Callable[[Any], int] = ctypes.CDLL(None).putenv
    except (AttributeError, OSError, TypeError):
        return None
    return found


_put_as_it_is = _find_putenv()
"""Makes a text a part of the C library's table, where a system has that: os.putenv makes a copy and keeps it."""


class OwnFolders:
    """The current directory of each rank; the last is that of no rank."""

    def __init__(self, num_ranks: int) -> None:
        self._folders: list[str | None] = [None] * (num_ranks + 1)
        self._moved = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Note which rank changes its directory, and go back at the end."""
        before = _current()

        def chdir(path: Any) -> None:
            _real_chdir(path)
            if current_rank() is not None and not self._moved:
                self._moved = True
                self._folders = [before] * len(self._folders)

        python: Any = os
        python.chdir = chdir
        try:
            yield
        finally:
            python.chdir = _real_chdir

    def switch(self, before: int, rank: int) -> None:
        """Go where this rank stands; -1 is no rank."""
        if not self._moved:
            return
        here = self._folders[before] = _current()
        there = self._folders[rank]
        if there is not None and there != here:
            _real_chdir(there)


def _current() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109  # as text: it is compared at each switch
    except FileNotFoundError:  # somebody removed it
        return None


class _Block:
    """Memory that the C library's table of the environment points into, with room for longer values."""

    def __init__(self, values: list[tuple[Any, Any]]) -> None:
        """Lay out a place for each name; it holds nothing yet."""
        self._places: dict[Any, int] = {}
        self._ends: list[int] = []
        size = 0
        for key, value in values:
            self._places[key] = size
            size += len(key) + 2 * len(value) + 32
            self._ends.append(size)
        self.memory = ctypes.create_string_buffer(max(size, 1))

    def image(self, values: list[tuple[Any, Any]]) -> bytes | None:
        """Return what the memory is to hold for these values of the names; None where it has no place for one."""
        if len(values) != len(self._places):
            return None
        image = b""
        for (key, value), (known, place), end in zip(values, self._places.items(), self._ends, strict=True):
            text = key + b"=" + value
            if key != known or place + len(text) >= end:
                return None
            image += text.ljust(end - place, b"\0")
        return image.ljust(len(self.memory), b"\0")

    def put(self) -> None:
        """Make it what the C library knows of the names."""
        assert _put_as_it_is is not None
        for place in self._places.values():
            _put_as_it_is(ctypes.c_void_p(ctypes.addressof(self.memory) + place))


class OwnEnviron:
    """What C code reads with getenv, for the names that are not the same for all ranks."""

    def __init__(self) -> None:
        self._tables: list[dict[Any, Any]] = []
        self._of_ranks: set[Any] = set()  # names of the same value in all ranks, and another outside
        self._differing: set[Any] = set()
        self._told: dict[Any, Any] = {}  # what the C library has of them
        self._own: dict[int, list[tuple[Any, Any]]] = {}  # rank -> names that differ and its values, once asked for
        self._texts: dict[Any, Any] = {}  # name -> what the C library's table has of it, where that is ours to change
        self._block = _Block([])
        self._images: dict[int, bytes] = {}  # rank -> what the block holds while it runs, once asked for
        self._putenv, self._unsetenv = os.putenv, os.unsetenv

    def differs(self, key: Any) -> None:
        """Say that who runs has given this name a value of its own, and the C library has it."""
        self._differing.add(key)
        self._own.clear()
        self._images.clear()
        self._told.pop(key, None)
        self._texts.pop(key, None)

    def begin(self, of_ranks: list[dict[Any, Any]], real: dict[Any, Any]) -> None:
        """Find what differs in these tables, as os.environ keeps them inside; the real one is no rank's."""
        self._tables = [*of_ranks, real]
        first = of_ranks[0]
        self._of_ranks = {key for key, _ in first.items() ^ real.items()}
        for table in of_ranks[1:]:
            self._differing |= {key for key, _ in table.items() ^ first.items()}

    def switch(self, before: int, rank: int) -> None:
        """Tell the C library what this rank has; -1 is no rank."""
        if before < 0 or rank < 0:
            self._images.clear()
            self._told.clear()
            here = self._tables[rank]
            self._tell([(key, here.get(key)) for key in self._differing | self._of_ranks], self._putenv)
            self._texts.clear()
            return
        image = self._images.get(rank)
        if image is not None:
            self._block.memory.raw = image
            return
        own = self._own.get(rank)
        if own is None:
            here = self._tables[rank]
            own = self._own[rank] = [(key, here.get(key)) for key in self._differing]
        if _put_as_it_is is None or any(value is None for _, value in own):
            self._images.clear()
            self._tell(own, self._write)
        else:
            self._show(rank, own)

    def _show(self, rank: int, own: list[tuple[Any, Any]]) -> None:
        """Give the C library these values in one piece of memory, in which they are all changed at once."""
        image = self._block.image(own) if self._images else None
        if image is None:  # there is none yet, or a value has grown, or a name has been set since
            block = _Block(own)
            image = block.image(own)
            assert image is not None
            block.memory.raw = image
            block.put()
            self._block = block  # only now does nothing of the C library's point to the last one
            self._images.clear()
            self._told.clear()
            self._texts.clear()
        self._block.memory.raw = image
        self._images[rank] = image

    def _tell(self, values: list[tuple[Any, Any]], put: Callable[[Any, Any], None]) -> None:
        told = self._told
        for key, value in values:
            if key in told and told[key] == value:
                continue
            told[key] = value
            if value is None:
                self._unsetenv(key)
                self._texts.pop(key, None)
            else:
                put(key, value)

    def _write(self, key: Any, value: Any) -> None:
        """Give the C library this value, where it has the last one: at each switch that is quicker than os.putenv."""
        text = self._texts.get(key)
        if text is not None and len(key) + len(value) + 1 < len(text):
            text.value = key + b"=" + value
        elif _put_as_it_is is None:
            self._putenv(key, value)
        else:
            text = ctypes.create_string_buffer(key + b"=" + value, len(key) + 2 * len(value) + 32)
            _put_as_it_is(text)
            self._texts[key] = text
