"""Copies of what a function closes over, one for each rank, as separate processes would have them.

cloudpickle gives every rank its own functions, globals and closures. Classes need care: in one process it would give
all ranks the notebook's own class. Here each rank gets a copy that remembers which class it is a copy of, so that
results are instances of the notebook's class again and objects sent between ranks become the receiver's.
"""

from __future__ import annotations

import io
import sys
import sysconfig
from collections.abc import Callable
from types import ModuleType
from typing import Any

import cloudpickle
import cloudpickle.cloudpickle as cloudpickle_private

from labkit.errors import ConfigError
from labkit.known_classes import KnownClassesUnpickler
from labkit.simulator.locks import REPLACED

_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def dumps(value: object) -> bytes:
    """Return value pickled by value."""
    data: bytes = cloudpickle.dumps(value, protocol=5)
    return data


def dump_call(fn: Callable[..., object], args: tuple[object, ...]) -> bytes:
    """Return a call pickled by value, the functions and globals of fn's own module included.

    Raises:
        ConfigError: If something cannot travel.
    """
    module = _own_module(fn)
    if module is not None:  # it is shared by all ranks of this process; a rank must have its own globals
        cloudpickle.register_pickle_by_value(module)
    try:
        return dumps((fn, args))
    except Exception as error:
        raise ConfigError(
            f"The function, what it uses or an argument cannot be copied for each rank: {error}. "
            "Pass plain data or tensors, and open files and connections inside the function."
        ) from error
    finally:
        if module is not None:
            cloudpickle.unregister_pickle_by_value(module)


def _own_module(fn: Callable[..., object]) -> ModuleType | None:
    """Return the module fn was imported from, if it is the learner's: neither installed nor labkit's."""
    module = sys.modules.get(str(getattr(fn, "__module__", "")))
    file = getattr(module, "__file__", None) or ""
    if module is None or module.__name__ == "__main__" or not file:
        return None
    return None if file.startswith(_INSTALLED) or module.__name__.startswith("labkit.") else module


class RankUnpickler(KnownClassesUnpickler):
    """Gives a rank its own copy of every class that travels by value."""

    def __init__(
        self, file: Any, classes: dict[str, type], namespaces: dict[str, dict[str, Any]] | None = None
    ) -> None:
        """Read from file.

        Args:
            file: Where the pickle is.
            classes: The rank's copies so far, by the tracker id that all copies of a class share; grows.
            namespaces: Module name -> globals of the rank's copies of functions; grows.
        """
        super().__init__(file, classes)
        self._copies = classes
        self._namespaces = {} if namespaces is None else namespaces

    def find_class(self, module: str, name: str) -> Any:
        """Return what the pickle names, with cloudpickle's classes and functions made by us."""
        if module == cloudpickle_private.__name__ and name == "_make_function":
            return self._make_function
        replaced = REPLACED.get((module, name))
        return super().find_class(module, name) if replaced is None else replaced

    def new_class(self, constructor: Any, name: str, bases: Any, type_kwargs: Any, tracker_id: Any, extra: Any) -> Any:
        """Return the rank's own copy of a class."""
        made = super().new_class(constructor, name, bases, type_kwargs, None, extra)
        self._copies[tracker_id] = made
        cloudpickle_private._DYNAMIC_CLASS_TRACKER_BY_CLASS[made] = tracker_id
        return made

    def _make_function(self, code: Any, namespace: dict[str, Any], *rest: Any) -> Any:
        self._namespaces.setdefault(str(namespace.get("__name__")), namespace)
        return cloudpickle_private._make_function(code, namespace, *rest)


def loads_in_rank(data: bytes, classes: dict[str, type], namespaces: dict[str, dict[str, Any]] | None = None) -> Any:
    """Return what data holds, with this rank's copies of classes; notes the globals of its copies of functions."""
    return RankUnpickler(io.BytesIO(data), classes, namespaces).load()
