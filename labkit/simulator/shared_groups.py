"""A process group in the hands of a rank that it does not belong to: whose it is, and what let it through."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from labkit.simulator.record import at
from labkit.simulator.rounds import Group
from labkit.simulator.state import VirtualRank
from labkit.torch_port.adapter import PortGroup, port_of

_DEEP = 3


def refuse(rank: VirtualRank, group: Group, owner: int, kind: str, port: object) -> None:
    """End the run, and raise RuntimeError: a rank came to a group by the end of another rank.

    The run ends with it, for torch describes the group where an error passes, and fails at that.

    Args:
        rank: Who calls.
        group: The group.
        owner: Global rank whose end it is.
        kind: What was called.
        port: The owner's end.
    """
    source, _ = rank.simulation.sources.find(sys._getframe(1))
    where = _place(lambda value: isinstance(value, PortGroup) and port_of(value) is port)
    shared = (
        f"{where} holds it, in a module that all virtual ranks share" if where else "Something that they share holds it"
    )
    error = RuntimeError(
        f"Rank {rank.rank} called {kind}{at(source)} on {group.label} as rank {owner} made it: a process group of "
        f"another rank. {shared}. Ranks have their own copies of your modules, not of installed ones: keep the group "
        "in a module or an object of your own, or run on labkit.local()."
    )
    try:
        raise error
    except RuntimeError:
        rank.simulation.failed(rank.rank, error)
        raise


def _place(is_it: Callable[[Any], bool]) -> str | None:
    """Return the dotted name under which modules that ranks share hold something, None where none is found."""
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and not name.startswith("labkit."):
            for way, value in _inside(name, module, _DEEP):
                if is_it(value):
                    return way
    return None


def _inside(way: str, holder: Any, deep: int) -> Iterator[tuple[str, Any]]:
    for name, value in _parts(holder):
        yield f"{way}{name}", value
        of_this_module = isinstance(value, type) and value.__module__ == way.partition(".<")[0]
        plain = isinstance(value, dict | list | tuple) or _is_instance_of_python(value)
        if deep > 1 and not name.startswith(".__") and (of_this_module or plain):
            yield from _inside(f"{way}{name}", value, deep - 1)


def _is_instance_of_python(value: Any) -> bool:
    kind = type(value)
    return not isinstance(value, type | ModuleType) and hasattr(kind, "__module__") and "__dict__" in dir(kind)


def _parts(holder: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(holder, dict):
        yield from ((f"[{key!r}]", value) for key, value in list(holder.items())[:1000])
    elif isinstance(holder, list | tuple):
        yield from ((f"[{place}]", value) for place, value in enumerate(holder[:1000]))
    else:
        try:
            yield from ((f".{name}", value) for name, value in list(vars(holder).items()))
        except TypeError:
            return
