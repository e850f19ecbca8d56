"""Tables, settings and names of shared modules that a process changes for itself alone, changed with the rank.

What is here is known one by one: settings of Python and of torch, and the singletons of libraries that training
scripts are written with. A library whose modules are installed and which keeps more of a process's state than this
shares it between ranks; a process group among it is found (labkit.simulator.virtual_port).
"""

from __future__ import annotations

import sys
from copy import copy
from dataclasses import dataclass
from itertools import compress
from operator import call, getitem, is_not
from typing import Any

from labkit.torch_port.process_tables import FLAGS, OF_DEVICES, TABLES, Fresh, Watched, same, watched

CUDA_VERSION = "12.9"
"""What torch.version.cuda says to ranks with virtual CUDA devices."""


def _empty(value: Any) -> Any:
    return type(value)()


PYTHON: tuple[tuple[str, str, Fresh], ...] = (
    ("builtins", "print", same),
    ("sys", "stdout", same),
    ("sys", "stderr", same),
    ("sys", "stdin", same),
    ("sys", "argv", copy),
    ("sys", "path", copy),
    ("sys", "excepthook", same),
    ("warnings", "filters", copy),
    ("warnings", "showwarning", same),
    ("warnings", "_showwarnmsg_impl", same),
    ("logging", "Logger.manager._disable", same),
)

LIBRARIES: tuple[tuple[str, str, Fresh], ...] = (
    ("accelerate.state", "PartialState._shared_state", _empty),
    ("accelerate.state", "AcceleratorState._shared_state", _empty),
    ("accelerate.state", "GradientState._shared_state", _empty),
)

WITH_CUDA: tuple[tuple[str, str, Fresh], ...] = (
    ("torch.version", "cuda", lambda _: CUDA_VERSION),
    *OF_DEVICES,
)


@dataclass(eq=False)
class _Place:
    """One name whose value is each rank's own; the last value is that of no rank."""

    owner: Any
    name: str
    values: list[Any]


class OwnTables:
    """Keeps what each rank has in these places, and puts it there when the rank runs."""

    def __init__(self, num_ranks: int, *, cuda: bool = False) -> None:
        """Begin with nothing known; :meth:`look` finds what is loaded.

        Args:
            num_ranks: How many ranks there are.
            cuda: Whether they find a torch that was built with CUDA.
        """
        self._num_ranks = num_ranks
        self._unknown = [*PYTHON, *TABLES, *LIBRARIES, *(WITH_CUDA if cuda else ())]
        self._places: list[_Place] = []
        # Of names that stand in a dictionary, as those of modules do, which is quicker to reach:
        self._tables: list[dict[str, Any]] = []  # where each stands
        self._names: list[str] = []  # and what each is called
        self._numbers = range(0)
        self._of_rank: list[list[Any]] = [[] for _ in range(num_ranks + 1)]  # their values; the last is no rank's
        self._shared: list[tuple[Any, str, Any]] = []  # tables that no rank has changed, and what was there before
        self._reads, self._writes = [read for read, _, _ in FLAGS], [write for _, write, _ in FLAGS]
        fresh_flags = [fresh for _, _, fresh in FLAGS]
        self._flags = [*[fresh_flags] * num_ranks, [read() for read in self._reads]]
        self._running = -1

    def look(self) -> None:
        """Give ranks values of their own in modules that are loaded by now; nobody has changed them yet."""
        left = []
        for module_name, path, fresh in self._unknown:
            *way, name = path.split(".")
            owner: Any = sys.modules.get(module_name)
            for step in way:
                owner = getattr(owner, step, None)
            if owner is None or not hasattr(owner, name):
                left.append((module_name, path, fresh))
                continue
            value = getattr(owner, name)
            if fresh is watched:
                self._shared.append((owner, name, value))
                setattr(owner, name, self._until_changed(owner, name, value))
                continue
            values = [fresh(value) for _ in range(self._num_ranks)]
            self._add(owner, name, [*values, value])
            if self._running >= 0:
                setattr(owner, name, values[self._running])
        self._unknown = left

    def end(self) -> None:
        """Put back what ranks shared."""
        for owner, name, value in self._shared:
            setattr(owner, name, value)
        self._shared.clear()

    def _add(self, owner: Any, name: str, values: list[Any]) -> None:
        table = vars(owner)
        if type(table) is dict and name in table:  # a class has none that can be changed
            self._tables.append(table)
            self._names.append(name)
            self._numbers = range(len(self._names))
            for mine, value in zip(self._of_rank, values, strict=True):
                mine.append(value)
        else:
            self._places.append(_Place(owner, name, values))

    def _until_changed(self, owner: Any, name: str, value: dict[Any, Any]) -> Watched:
        """Return a table that is every rank's until one changes it: from then on each has its own."""
        shared = watched(value)

        def changes() -> None:
            self._shared = [one for one in self._shared if (one[0], one[1]) != (owner, name)]
            values = [shared if rank == self._running else copy(value) for rank in range(self._num_ranks)]
            self._add(owner, name, [*values, value])

        shared.changes = changes
        return shared

    def switch(self, before: int, rank: int) -> None:
        """Put away what was changed by who ran before and bring what who runs now has; -1 is no rank."""
        self._running = rank
        tables, names, mine = self._tables, self._names, self._of_rank[rank]
        here = self._of_rank[before] = list(map(getitem, tables, names))
        for number in compress(self._numbers, map(is_not, mine, here)):
            tables[number][names[number]] = mine[number]
        for place in self._places:
            there = place.values[before] = getattr(place.owner, place.name)
            value = place.values[rank]
            if value is not there:
                setattr(place.owner, place.name, value)
        flags = self._flags[rank]
        found = self._flags[before] = list(map(call, self._reads))
        if flags != found:
            for write, value, there in zip(self._writes, flags, found, strict=True):
                if value != there:
                    write(value)
