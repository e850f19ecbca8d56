"""Copies of what a function closes over, one for each rank, as separate processes would have them.

cloudpickle gives every rank its own functions, globals and closures; what comes from a notebook's cells stands in the
rank's own ``__main__`` (labkit.simulator.own_modules), where pickles find it by name. Classes need care: in one process
cloudpickle would give all ranks the notebook's own class. Here each rank gets a copy that remembers which class it is a
copy of, so that results are instances of the notebook's class again.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import cloudpickle
import cloudpickle.cloudpickle as cloudpickle_private

from labkit.errors import ConfigError
from labkit.known_classes import KnownClassesUnpickler, reduce_cached, reduce_module
from labkit.simulator.locks import REPLACED
from labkit.simulator.own_modules import is_own


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle is not typed
    def reducer_override(self, obj: Any) -> Any:
        reduced = reduce_cached(obj) or reduce_module(obj)
        return super().reducer_override(obj) if reduced is None else reduced


def dumps(value: object) -> bytes:
    """Return value pickled by value."""
    with io.BytesIO() as file:
        _Pickler(file, protocol=5).dump(value)
        return file.getvalue()


def dump_call(fn: Callable[..., object], args: tuple[object, ...]) -> bytes:
    """Return a call pickled by value; what can be imported, a rank imports itself.

    Raises:
        ConfigError: If something cannot travel.
    """
    module = _made_by_hand(fn)
    if module is not None:  # no rank could import it
        cloudpickle.register_pickle_by_value(module)
    try:
        return dumps((fn, args))
    except Exception as error:
        raise ConfigError(
            f"The function, what it uses or an argument cannot be copied for each rank: {error}. "
            "Pass plain data or tensors; open files and connections inside the function."
        ) from error
    finally:
        if module is not None:
            cloudpickle.unregister_pickle_by_value(module)


def _made_by_hand(fn: Callable[..., object]) -> ModuleType | None:
    """Return the module of fn, if it is the learner's and no file's."""
    module = sys.modules.get(str(getattr(fn, "__module__", "")))
    if module is None or module.__name__ == "__main__" or getattr(module, "__file__", None) or not is_own(module):
        return None
    return module


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
        if type_kwargs.get("__module__") == "__main__" and "__main__" in self._namespaces:
            self._namespaces["__main__"].setdefault(name, made)
        self._copies[tracker_id] = made
        cloudpickle_private._DYNAMIC_CLASS_TRACKER_BY_CLASS[made] = tracker_id
        return made

    def _make_function(self, code: Any, namespace: dict[str, Any], *rest: Any) -> Any:
        name = str(namespace.get("__name__"))
        known = self._namespaces.setdefault(name, namespace)
        return cloudpickle_private._make_function(code, known if name == "__main__" else namespace, *rest)


def loads_in_rank(data: bytes, classes: dict[str, type], namespaces: dict[str, dict[str, Any]] | None = None) -> Any:
    """Return what data holds, with this rank's copies of classes; notes the globals of its copies of functions."""
    return RankUnpickler(io.BytesIO(data), classes, namespaces).load()


def dump_result(result: object) -> bytes:
    """Return what a rank's function returned, as bytes.

    Raises:
        TypeError: If it cannot be taken out of the rank.
    """
    try:
        return dumps(result)
    except Exception as error:
        raise TypeError(
            f"The function's result cannot be taken out of the rank: {type(result).__name__}: {error}. "
            "Return plain data or tensors."
        ) from None
