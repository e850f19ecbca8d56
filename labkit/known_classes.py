"""Values that come by value, with the classes that are known here kept as they are.

cloudpickle sends a notebook's class along with its instances, and would make or overwrite the class where they arrive.
Here an instance becomes one of the class that is there, which may have been changed since.
"""

from __future__ import annotations

import functools
import io
import pickle
import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

import cloudpickle.cloudpickle as cloudpickle_private


def reduce_cached(value: object) -> Any:
    """Return how a function under functools.cache travels where the function does so by value; None for anything else.

    By itself it would travel as a name, and arrive as whatever bears that name there: in one process, with the cache of
    another rank.
    """
    if not isinstance(value, functools._lru_cache_wrapper):
        return None
    function = value.__wrapped__
    if cloudpickle_private._should_pickle_by_reference(function):
        return None
    return _cached, (function, value.cache_parameters())


def reduce_module(value: object) -> Any:
    """Return how a module travels whose class is its own, such as torch.backends.cudnn; None for anything else.

    cloudpickle sends modules by name, and knows only those that are of no subclass.
    """
    if not isinstance(value, ModuleType) or type(value) is ModuleType or sys.modules.get(value.__name__) is not value:
        return None
    return import_module, (value.__name__,)


def _cached(function: Any, parameters: Any) -> Any:
    return functools.lru_cache(**parameters)(function)


class KnownClassesUnpickler(pickle.Unpickler):
    """Reads what cloudpickle wrote; classes that are known are neither replaced nor changed."""

    def __init__(self, file: Any, classes: Mapping[str, type]) -> None:
        """Read from file.

        Args:
            file: Where the pickle is.
            classes: The classes that are known, by the tracker id that cloudpickle gives all copies of a class.
        """
        super().__init__(file)
        self._classes = classes
        self._known: set[type] = set()

    def find_class(self, module: str, name: str) -> Any:
        """Return what the pickle names, with cloudpickle's classes made here."""
        if module == cloudpickle_private.__name__ and name == "_make_skeleton_class":
            return self._make_skeleton_class
        if module == cloudpickle_private.__name__ and name == "_class_setstate":
            return self._class_setstate
        return super().find_class(module, name)

    def new_class(self, constructor: Any, name: str, bases: Any, type_kwargs: Any, tracker_id: Any, extra: Any) -> Any:
        """Return a class that is not known, still empty."""
        return cloudpickle_private._make_skeleton_class(constructor, name, bases, type_kwargs, tracker_id, extra)

    def _make_skeleton_class(
        self, constructor: Any, name: str, bases: Any, type_kwargs: Any, tracker_id: Any, extra: Any
    ) -> Any:
        known = self._classes.get(tracker_id)
        if known is not None:
            self._known.add(known)
            return known
        return self.new_class(constructor, name, bases, type_kwargs, tracker_id, extra)

    def _class_setstate(self, made: Any, state: Any) -> Any:
        return made if made in self._known else cloudpickle_private._class_setstate(made, state)


def loads_in_notebook(data: bytes) -> Any:
    """Return what data holds; classes this process knows are neither replaced nor changed."""
    return KnownClassesUnpickler(io.BytesIO(data), cloudpickle_private._DYNAMIC_CLASS_TRACKER_BY_ID).load()
