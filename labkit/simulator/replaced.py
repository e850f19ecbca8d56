"""What a program changes in installed modules: functions and classes in whose place it puts its own, names it adds.

All virtual ranks and the notebook share installed modules: what one rank replaces is replaced for every rank. When the
run ends, what was there before is put back, as it is gone when a process of its own ends, and the run says what it was.
What was put back by the program itself before the run ended is not seen.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from operator import is_
from types import FunctionType
from typing import Any

import torch

from labkit.simulator.own_modules import is_programs

_PATCHED = ("torch.nn", "torch.optim", "torch.utils.data")
"""Modules whose classes programs are known to change method by method."""
_DATA = (int, float, complex, str, bytes, list, dict, tuple, set, torch.Tensor)


class _Seen:
    """What stands in modules and classes, from run to run.

    Nearly all of it stays: that is found in one pass over all values, in less than half the time of noting them anew.
    It is noted between two runs, so that it keeps nothing of a run; where a run itself puts names, it is noted in each.
    """

    def __init__(self) -> None:
        """Begin with nothing seen."""
        self._owners: list[Any] = []
        self._is_noted = True
        self._changing: list[Any] = []
        self._keep([])

    def note(self) -> None:
        """Note what stands where the last run looked, if it was the first to look there; called between two runs."""
        if not self._is_noted:
            self._keep([(owner, dict(vars(owner))) for owner in self._owners])
            self._changing, self._is_noted = [], True

    def look(self, owners: list[Any]) -> list[tuple[Any, dict[str, Any]]]:
        """Return what stands in those of the owners that may be other than what was noted."""
        if len(owners) != len(self._owners) or not all(map(is_, owners, self._owners)):
            self._owners, self._changing, self._is_noted = owners, owners, False
            self._keep([])
        elif not self._stays():
            self._changing += [owner for owner, names in self._staying if _differs(owner, names)]
            self._keep([each for each in self._staying if not _differs(*each)])
        return [(owner, dict(vars(owner))) for owner in self._changing]

    def changed(self, looked_at: list[tuple[Any, dict[str, Any]]]) -> list[tuple[Any, dict[str, Any]]]:
        """Return what has changed since :meth:`look`, in its order, each with the names and values that it had."""
        staying = [] if self._stays() else self._staying
        found = {id(owner): names for owner, names in (*staying, *looked_at) if _differs(owner, names)}
        return [(owner, found[id(owner)]) for owner in self._owners if id(owner) in found] if found else []

    def _keep(self, staying: list[tuple[Any, dict[str, Any]]]) -> None:
        self._staying = staying
        self._values = list(chain.from_iterable(names.values() for _, names in staying))
        self._sizes = [len(names) for _, names in staying]
        self._now = [vars(owner).values() for owner, _ in staying]

    def _stays(self) -> bool:
        """Return whether names have their values: == passes over what is identical; a function equals itself alone."""
        if list(map(len, self._now)) != self._sizes:
            return False
        try:
            return list(chain.from_iterable(self._now)) == self._values
        except Exception:  # a value that came says nothing about what it equals
            return False


_seen = _Seen()


def note() -> None:
    """Note what stands in modules that runs share; called before a run puts names of its own there."""
    _seen.note()


@contextmanager
def put_back(shared: Iterable[str], notes: dict[str, int]) -> Iterator[None]:
    """Put back what was replaced while this context lasted.

    Args:
        shared: Names of the modules that all ranks share.
        notes: Takes a sentence for each function or class that the program had replaced.
    """
    before = _seen.look(list(_owners(shared)))
    try:
        yield
    finally:
        for owner, names in _seen.changed(before):
            now = vars(owner)
            place = f"{owner.__module__}.{owner.__name__}" if isinstance(owner, type) else owner.__name__
            for name in _added(owner, names, now):
                delattr(owner, name)
                notes[
                    f"The program set {place}.{name}. Ranks share installed modules, so every rank saw the value that "
                    "was set last. It has been removed."
                ] = 0
            for name in _replaced(names, now):
                setattr(owner, name, names[name])
                notes[
                    f"The program replaced {place}.{name}: for every rank, since ranks share installed modules. "
                    "It has been put back."
                ] = 0


def _differs(owner: Any, names: dict[str, Any]) -> bool:
    now = vars(owner)
    return len(now) != len(names) or not all(map(is_, names.values(), now.values()))


def _owners(shared: Iterable[str]) -> Iterator[Any]:
    for name in shared:
        module = sys.modules.get(name)
        if module is None or not hasattr(module, "__dict__"):
            continue
        yield module
        if name == "torch":
            yield torch.Tensor
        if name.startswith(_PATCHED):
            yield from (
                value for value in list(vars(module).values()) if isinstance(value, type) and value.__module__ == name
            )


def _replaced(names: dict[str, Any], now: Mapping[str, Any]) -> list[str]:
    return [
        name
        for name, value in names.items()
        if callable(value) and name in now and now[name] is not value and _is_of_program(now[name])
    ]


def _added(owner: Any, names: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return names that a program has added: its functions and classes anywhere, and data where modules add none."""
    place = owner.__module__ if isinstance(owner, type) else owner.__name__
    kept_still = place == "builtins" or place.startswith(_PATCHED) or owner is torch.Tensor
    return [
        name
        for name, value in list(now.items())
        if name not in names and not name.startswith("_")
        and (_is_of_program(value) or (kept_still and isinstance(value, _DATA)))
    ]  # fmt: skip


def _is_of_program(value: Any) -> bool:
    """Return whether a program's own code made this: a wrapper says it is of the module whose function it wraps."""
    value = getattr(value, "func", value)  # of a partial
    value = getattr(value, "__func__", value)
    home = value.__globals__.get("__name__") if isinstance(value, FunctionType) else getattr(value, "__module__", None)
    return isinstance(value, FunctionType | type) and is_programs(str(home))
