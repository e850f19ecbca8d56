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
    """What stands in modules and classes when a run begins.

    Between two runs nearly all of it stays: that is found in one pass over all values, in less than half the time of
    noting them anew. What changed once, as modules do in which a run puts names of its own, is noted for each run.
    """

    def __init__(self, owners: list[Any]) -> None:
        """Note what is there now.

        Args:
            owners: Modules and classes.
        """
        self.owners = owners
        self._changing: list[tuple[Any, dict[str, Any]]] = []
        self._keep([(owner, dict(vars(owner))) for owner in owners])

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

    def look(self) -> None:
        """Note what has changed since it was noted."""
        if not self._stays():
            self._changing += (each for each in self._staying if _differs(*each))
            self._keep([each for each in self._staying if not _differs(*each)])
        self._changing = [(owner, dict(vars(owner))) for owner, _ in self._changing]

    def changed(self) -> list[tuple[Any, dict[str, Any]]]:
        """Return what has changed since :meth:`look`, each with the names and values that it had."""
        staying = [] if self._stays() else self._staying
        return [each for each in (*staying, *self._changing) if _differs(*each)]


_last: list[_Seen] = []
"""What the last run found. A list, for a name that is set in this module would be seen as a change."""


@contextmanager
def put_back(shared: Iterable[str], notes: dict[str, int]) -> Iterator[None]:
    """Put back what was replaced while this context lasted.

    Args:
        shared: Names of the modules that all ranks share.
        notes: Takes a sentence for each function or class that the program had replaced.
    """
    owners = list(_owners(shared))
    if not _last or len(owners) != len(_last[0].owners) or not all(map(is_, owners, _last[0].owners)):
        _last[:] = [_Seen(owners)]
    seen = _last[0]
    seen.look()
    try:
        yield
    finally:
        for owner, names in seen.changed():
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
