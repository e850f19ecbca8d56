"""Answers that are right for what they have seen and for nothing else, made of an exercise's own right answer.

One knows the visible cases by heart: every value it was given. One recognises what it is handed by its kind: the
stand-ins for a model, a compressor, a server, a store that a check brings. Each call is looked up; what is not known
raises.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import torch
import torch.distributed as dist

Print: TypeAlias = Callable[[Any, Any], str]
"""What stays of a call: of its arguments, and of whose method it is."""
_ASKED = ("__init__", "__call__", "__torch_function__", "__iter__", "__getitem__")
"""Methods of a class that are asked something, beside those that a name makes public."""
_WORLDS = ("torch.", "labkit.simulator.", "labkit.torch_port.")
"""What ranks are made of: whoever looks into a remote reference finds the whole world behind it."""
_STANDS_IN = ("labkit.exercises.", "labkit.checks.", "hidden.")


class Unknown(Exception):
    """An answer was asked for what it does not know."""


def by_value(arguments: Any, owner: Any) -> str:
    """Return a hash of all arguments' values, and of who asks: the rank and the number of ranks."""
    here = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else os.environ.get("RANK")
    return hashlib.sha256("/".join([str(here), *_values(arguments, set())]).encode()).hexdigest()


def by_stand_in(arguments: Any, owner: Any) -> str:
    """Return the kinds of stand-ins among the arguments and in what its object keeps, "" where there are none."""
    return " ".join(sorted(set(_stand_ins([arguments, getattr(owner, "__dict__", {})], set()))))


def _values(value: Any, seen: set[int]) -> Iterator[str]:
    if isinstance(value, (str, bytes, int, float, bool, type(None), torch.dtype, torch.Size)):
        yield repr(value)
        return
    yield type(value).__qualname__
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        yield f"{value.dtype}{tuple(value.shape)}{value.device}"
        if value.device.type != "meta":
            yield str(value.detach().cpu().reshape(-1).tolist())
    elif isinstance(value, dict):
        for key, part in value.items():
            yield str(key)
            yield from _values(part, seen)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for part in value:
            yield from _values(part, seen)
    else:
        yield getattr(value, "__qualname__", "")
        for part in _parts(value):
            yield from _values(part, seen)


def _parts(value: Any) -> list[Any]:
    """Return what an object is made of, as far as it can be looked into."""
    if isinstance(value, types.MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, types.FunctionType):
        return [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
    if isinstance(value, torch.nn.Module):
        return [value.state_dict(), *value.children()]
    if isinstance(value, (torch.Tensor, type, types.ModuleType)) or type(value).__module__.startswith(_WORLDS):
        return []
    return list(getattr(value, "__dict__", {}).values())


def _stand_ins(value: Any, seen: set[int]) -> Iterator[str]:
    if id(value) in seen:
        return
    seen.add(id(value))
    kind = value if isinstance(value, (type, types.FunctionType)) else type(value)
    module = getattr(kind, "__module__", "") or ""
    if module.startswith(_STANDS_IN):
        yield f"{module}.{kind.__qualname__}"
        return
    for part in _looked_into(value, module):
        yield from _stand_ins(part, seen)


def _looked_into(value: Any, module: str) -> list[Any]:
    """Return what an answer may have put into a value; not what torch and labkit keep in theirs."""
    if isinstance(value, torch.nn.Module):
        return list(value.children())  # to read its state would be seen where memory is counted
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value)
    if isinstance(value, (types.FunctionType, types.MethodType)):
        return _parts(value)
    return [] if module.startswith(("torch", "labkit.")) else _parts(value)


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def watched(answer: Any, kept: Path, of: Print) -> Any:
    """Return the answer, which notes in a file what it is asked."""

    def note(arguments: Any, owner: Any) -> None:
        with open(kept, "a", encoding="utf-8") as file:
            file.write(of(arguments, owner) + "\n")

    return _wrapped(answer, note)


def knowing(answer: Any, known: frozenset[str], of: Print) -> Any:
    """Return the answer, right for what is known and for nothing else."""

    def look_up(arguments: Any, owner: Any) -> None:
        if of(arguments, owner) not in known:
            raise Unknown("never seen")

    return _wrapped(answer, look_up)


def _wrapped(answer: Any, before: Callable[[Any, Any], None]) -> Any:
    if inspect.isclass(answer):
        return _wrapped_class(answer, before)

    @functools.wraps(answer)
    def ask(*arguments: Any, **named: Any) -> Any:
        before((arguments, named), None)
        return answer(*arguments, **named)

    return ask


def _wrapped_class(answer: type, before: Callable[[Any, Any], None]) -> type:
    def method(function: Any) -> Any:
        @functools.wraps(function)
        def ask(self: Any, *arguments: Any, **named: Any) -> Any:
            before((arguments, named), self)
            return function(self, *arguments, **named)

        return ask

    for name, value in list(vars(answer).items()):
        if isinstance(value, types.FunctionType) and (name in _ASKED or not name.startswith("_")):
            setattr(answer, name, method(value))
        elif isinstance(value, staticmethod):
            setattr(answer, name, staticmethod(_wrapped(value.__func__, before)))
    return answer
