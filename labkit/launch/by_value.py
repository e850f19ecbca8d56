"""Functions, classes and values that travel between the notebook and the ranks, by value.

Two things cloudpickle leaves open are settled here. In a rank, functions that come from the notebook live in
one ``__main__``, as they did in the notebook, so that RPC, ``all_gather_object`` and DataLoader workers find what they
name. In the notebook, a result whose class was defined there never overwrites that class: it may have been changed
since.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Mapping
from types import FunctionType, ModuleType
from typing import Any

import cloudpickle
import cloudpickle.cloudpickle as cloudpickle_private

from labkit.known_classes import reduce_cached, reduce_module


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle is not typed
    """cloudpickle, with tensors on an accelerator moved to the CPU: the notebook may have none."""

    def reducer_override(self, obj: Any) -> Any:
        cached = reduce_cached(obj) or reduce_module(obj)
        if cached is not None:
            return cached
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(obj, torch.Tensor) and not _is_here(obj):
            host = obj.detach().cpu()
            if isinstance(obj, torch.nn.Parameter):  # a module that comes back without Parameters trains nothing
                return torch.nn.Parameter, (host, obj.requires_grad)
            return host.requires_grad_(obj.requires_grad).__reduce_ex__(5)
        return super().reducer_override(obj)


def _is_here(tensor: Any) -> bool:
    """Return whether a tensor needs no accelerator."""
    return tensor.device.type in ("cpu", "meta")


def dumps(value: object) -> bytes:
    """Return value pickled by value: notebook functions and classes included, tensors as plain data on the CPU."""
    with io.BytesIO() as file:
        _Pickler(file, protocol=5).dump(value)
        return file.getvalue()


class _RankUnpickler(pickle.Unpickler):
    """Puts functions and classes of the notebook's ``__main__`` into this process's ``__main__``."""

    def __init__(self, data: bytes, main: ModuleType) -> None:
        super().__init__(io.BytesIO(data))
        self._main = main

    def find_class(self, module: str, name: str) -> Any:
        if module == cloudpickle_private.__name__ and name == "_make_function":
            return self._make_function
        if module == cloudpickle_private.__name__ and name == "_make_skeleton_class":
            return self._make_skeleton_class
        return super().find_class(module, name)

    def _make_function(
        self, code: Any, namespace: dict[str, Any], name: Any = None, defaults: Any = None, closure: Any = None
    ) -> FunctionType:
        if namespace.get("__name__") == "__main__":
            namespace = self._main.__dict__
        function = cloudpickle_private._make_function(code, namespace, name, defaults, closure)
        assert isinstance(function, FunctionType)
        return function

    def _make_skeleton_class(
        self, constructor: Any, name: str, bases: Any, type_kwargs: dict[str, Any], tracker_id: Any, extra: Any
    ) -> Any:
        made = cloudpickle_private._make_skeleton_class(constructor, name, bases, type_kwargs, tracker_id, extra)
        if type_kwargs.get("__module__") == "__main__":
            self._main.__dict__.setdefault(name, made)
        return made


def loads_in_rank(data: bytes, main: ModuleType) -> Any:
    """Return what data holds; names of the notebook's ``__main__`` that it brings appear in main.

    Args:
        data: What dumps() made in the notebook.
        main: This process's ``__main__`` module.
    """
    return _RankUnpickler(data, main).load()


def find_unpicklable(values: Mapping[str, object]) -> str | None:
    """Return the name of the first value that cannot be pickled and why, or None where all can."""
    for name, value in values.items():
        try:
            dumps(value)
        except Exception as error:
            return f"{name} ({type(value).__name__}): {error}"
    return None
