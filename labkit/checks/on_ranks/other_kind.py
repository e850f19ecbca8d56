"""Stand-ins of a class that no visible case shows: a hidden case names it, and the driver makes it anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from labkit.checks.case import Values

OTHER_KIND = "other kind"
"""What a case that names a class has among each rank's inputs."""

_Kind = TypeVar("_Kind")
_Function = TypeVar("_Function", bound=Callable[..., Any])
_OF_ITS_OWN = ("__dict__", "__weakref__")


def kind_for(kind: type[_Kind], inputs: Values) -> type[_Kind]:
    """Return `kind`, or where the case names another one, a class with the same members that is not derived from it.

    ``super()`` without arguments does not work in the methods of such a class.
    """
    if OTHER_KIND not in inputs:
        return kind
    name = cast(str, inputs[OTHER_KIND])
    members = {each: value for each, value in vars(kind).items() if each not in _OF_ITS_OWN}
    return cast(type[_Kind], type(cast(type, kind))(name, kind.__bases__, {**members, "__qualname__": name}))


def named_for(function: _Function, inputs: Values) -> _Function:
    """Return a driver's own function, under the name that the case has for what is of another kind."""
    if OTHER_KIND in inputs:
        function.__name__ = function.__qualname__ = cast(str, inputs[OTHER_KIND])
    return function
