"""What a program changes in installed modules: functions and classes in whose place it puts its own, names it adds.

All virtual ranks and the notebook share installed modules: what one rank replaces is replaced for every rank. When the
run ends, what was there before is put back, as it is gone when a process of its own ends, and the run says what it was.
What was put back by the program itself before the run ended is not seen.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from operator import is_
from types import FunctionType
from typing import Any

import torch

from labkit.simulator.own_modules import is_programs

_PATCHED = ("torch.nn", "torch.optim", "torch.utils.data")
"""Modules whose classes programs are known to change method by method."""
_DATA = (int, float, complex, str, bytes, list, dict, tuple, set, torch.Tensor)


@contextmanager
def put_back(shared: Iterable[str], notes: dict[str, int]) -> Iterator[None]:
    """Put back what was replaced while this context lasted.

    Args:
        shared: Names of the modules that all ranks share.
        notes: Takes a sentence for each function or class that the program had replaced.
    """
    before = [(owner, dict(vars(owner))) for owner in _owners(shared)]
    try:
        yield
    finally:
        for owner, names in before:
            now = vars(owner)
            if len(now) == len(names) and all(map(is_, names.values(), now.values())):
                continue
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
