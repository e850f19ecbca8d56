"""Dates in virtual time: what datetime.now() and date.today() say to ranks, and names that modules took of clocks.

``datetime.datetime`` is a class of C whose methods cannot be replaced, so while ranks run a class of Python stands in
its place. To other threads it is the real one, and of both each is an instance of the other's class.
"""

from __future__ import annotations

import copyreg
import datetime as dates
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.machinery import ExtensionFileLoader
from types import ModuleType
from typing import Any

from labkit.simulator.state import current_rank

_Date: Any = dates.date
_DateTime: Any = dates.datetime
_STANDARD = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib")})
_OURS = __name__.partition(".")[0]
_looked_at: set[int] = set()
_taken: list[tuple[dict[str, Any], str, Any]] = []


class _OfBoth(type):
    """Whose instances are those of the real class, too."""

    real: Any

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.real)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.real)


class _VirtualDateTime(_DateTime, metaclass=_OfBoth):  # type: ignore[misc]
    """datetime.datetime as ranks find it."""

    real = _DateTime

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Return a date and time, of the real class or of a program's own."""
        return _DateTime(*args, **kwargs) if cls is _VirtualDateTime else super().__new__(cls, *args, **kwargs)

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        """Return what it is in the time of the thread that asks."""
        return super().now(tz) if current_rank() is None else cls.fromtimestamp(time.time(), tz)

    @classmethod
    def today(cls) -> Any:
        """Return what it is here in the time of the thread that asks."""
        return cls.now()

    @classmethod
    def utcnow(cls) -> Any:
        """Return what it is in UTC, without saying so."""
        return cls.now(dates.UTC).replace(tzinfo=None)


class _VirtualDate(_Date, metaclass=_OfBoth):  # type: ignore[misc]
    """datetime.date as ranks find it."""

    real = _Date

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Return a date, of the real class or of a program's own."""
        return _Date(*args, **kwargs) if cls is _VirtualDate else super().__new__(cls, *args, **kwargs)

    @classmethod
    def today(cls) -> Any:
        """Return the date in the time of the thread that asks."""
        return super().today() if current_rank() is None else cls.fromtimestamp(time.time())


for _virtual in (_VirtualDateTime, _VirtualDate):
    _virtual.__name__ = _virtual.__qualname__ = _virtual.real.__name__
    _virtual.__module__ = "datetime"


def _reduced(value: Any) -> Any:
    """Return how a real date travels while a class of ours stands where its own is named."""
    _, *state = value.__reduce__()
    return getattr(dates, type(value).__name__), *state


@contextmanager
def installed(clocks: Mapping[Any, Callable[..., Any]]) -> Iterator[None]:
    """Let ranks find virtual dates, and virtual clocks where installed modules took a clock's name; undone on leaving.

    Args:
        clocks: Function of the standard library -> what ranks and other threads call in its place.
    """
    module: Any = dates
    _look(clocks)
    before = {kind: copyreg.dispatch_table.get(kind) for kind in (_DateTime, _Date)}
    loader: Any = ExtensionFileLoader
    real_load = loader.create_module, loader.exec_module

    def loading(load: Any) -> Any:
        """What is compiled takes the types of datetime as it is loaded, and needs those that C knows."""

        def loaded(*args: Any) -> Any:
            mine = module.datetime, module.date
            module.datetime, module.date = _DateTime, _Date
            try:
                return load(*args)
            finally:
                module.datetime, module.date = mine

        return loaded

    loader.create_module, loader.exec_module = map(loading, real_load)
    module.datetime, module.date = _VirtualDateTime, _VirtualDate
    for kind in before:
        copyreg.pickle(kind, _reduced)
    for names, name, real in _taken:
        if names.get(name) is real:
            names[name] = clocks[real]
    try:
        yield
    finally:
        for names, name, real in _taken:
            if names.get(name) is clocks[real]:
                names[name] = real
        module.datetime, module.date = _DateTime, _Date
        loader.create_module, loader.exec_module = real_load
        for kind, reducer in before.items():
            if reducer is None:
                del copyreg.dispatch_table[kind]
            else:
                copyreg.pickle(kind, reducer)


def _look(clocks: Mapping[Any, Any]) -> None:
    """Find the names that modules took of clocks with ``from time import time``, once for each module."""
    known = {id(real): real for real in clocks}
    for name, module in list(sys.modules.items()):
        if id(module) in _looked_at or not isinstance(module, ModuleType):
            continue
        _looked_at.add(id(module))
        file = getattr(module, "__file__", None) or ""
        if not file or name.partition(".")[0] == _OURS or (file.startswith(_STANDARD) and "-packages" not in file):
            continue
        names = vars(module)
        for word, value in list(names.items()):
            if id(value) in known:
                _taken.append((names, word, value))
