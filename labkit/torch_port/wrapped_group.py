"""A process group around a plain one: whoever watches is told of every call, the plain group does the work.

``torch.distributed`` builds its groups by the name ``distributed_c10d.ProcessGroup``; :func:`wrapping_class` makes the
class to put there, :func:`install` puts it there. Wrapping the group, not the functions, is what catches DDP's reducer,
``fully_shard`` and functional collectives, which call the group from C++, and keeps ``P2POp``'s identity check on
``dist.isend`` true. The calls go to the inner group: the base class's own method would run with the interpreter lock
held and block the backend's threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch.distributed import distributed_c10d as c10d

from labkit.torch_port.operations import OPERATIONS, Operation

PlainGroup: Any = c10d.ProcessGroup

BOTH = ("_register_backend", "_set_default_backend", "_set_group_name", "_set_group_desc")
"""Methods that describe the group, applied to the wrapping group and to the one inside it."""

OWN = ("_pybind11_conduit_v1_", "_id", "boxed", "unbox", "rank", "size")
"""Methods that must stay those of the wrapping group itself."""


class Watch(Protocol):
    """Whoever is told of one group's calls."""

    def called(
        self, operation: Operation, forward: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Carry a call out by `forward`, and return the handle for the caller, who is two frames above."""

    def coalescing_begins(self) -> None:
        """Take the calls from now on for parts of one."""

    def coalescing_ends(self, work: Any) -> Any:
        """Return the handle of all calls since; `work` is the plain group's, None where it has none."""


def wrapping_class(watched_by: Callable[[Any, Any], Watch]) -> Any:
    """Return a ProcessGroup class.

    Args:
        watched_by: Returns whoever watches a new group, from that and the plain one inside it.
    """

    class WrappingGroup(PlainGroup, metaclass=_AnyGroup):  # type: ignore[misc]
        """A process group that tells of what it is asked to do."""

        def __init__(self, store: Any, rank: int, size: int) -> None:
            self._adopt(PlainGroup(store, rank, size))

        def __repr__(self) -> str:
            return f"<process group of ranks {global_ranks(self)}>"

        def _adopt(self, inner: Any) -> None:
            PlainGroup.__init__(self, inner.rank(), inner.size())
            self._inner = inner
            self._watch = watched_by(self, inner)

        def _start_coalescing(self, device: torch.device) -> None:
            self._inner._start_coalescing(device)
            self._watch.coalescing_begins()

        def _end_coalescing(self, device: torch.device) -> Any:
            return self._watch.coalescing_ends(self._inner._end_coalescing(device))

        def split_group(self, *args: Any, **kwargs: Any) -> Any:
            return _twin(self._inner.split_group(*args, **kwargs), type(self))

        def merge_remote_group(self, *args: Any, **kwargs: Any) -> Any:
            return _twin(self._inner.merge_remote_group(*args, **kwargs), type(self))

    own = set(vars(WrappingGroup)) | set(OWN)
    watched = {name: operation for operation in OPERATIONS for name in operation.methods}
    for name in dir(PlainGroup):
        value = getattr(PlainGroup, name)
        if name in own or (name.startswith("__") and name.endswith("__")):
            continue
        if isinstance(value, property):
            setattr(WrappingGroup, name, _shared_property(name))
        elif name in BOTH:
            setattr(WrappingGroup, name, _applied_to_both(name))
        elif name in watched:
            setattr(WrappingGroup, name, _watched(name, watched[name]))
        elif callable(value) and not isinstance(value, type):
            setattr(WrappingGroup, name, _forwarded(name))
    return WrappingGroup


def install(group_class: Any) -> Callable[[], None]:
    """Let torch build its groups by this class from now on; return what undoes it."""
    module: Any = c10d
    module.ProcessGroup = group_class

    def undo() -> None:
        module.ProcessGroup = PlainGroup

    return undo


def global_ranks(group: Any) -> list[int] | None:
    """Return the global rank of each rank of a group, None where torch has not registered the group."""
    known = c10d._world.pg_group_ranks.get(group)
    if not known:
        return None
    by_rank = {group_rank: global_rank for global_rank, group_rank in known.items()}
    return [by_rank[rank] for rank in range(len(by_rank))]


def backend_name(group: Any, device: torch.device) -> str:
    """Return the name of the backend that carries out a group's calls on a device."""
    return str(group._get_backend(device).name())


def gets_handles(module_name: str) -> bool:
    """Return whether a module's code may be handed a handle of ours: the learner's, or the functions it calls."""
    return module_name == c10d.__name__ or not module_name.startswith("torch.")


class _AnyGroup(type(PlainGroup)):  # type: ignore[misc]
    """Makes every process group an instance of the wrapping class, as torch expects of the name it is found under."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, PlainGroup)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, PlainGroup)


def _watched(name: str, operation: Operation) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self._watch.called(operation, getattr(self._inner, name), args, kwargs)

    method.__name__ = name
    return method


def _forwarded(name: str) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._inner, name)(*args, **kwargs)

    method.__name__ = name
    return method


def _applied_to_both(name: str) -> Any:
    def method(self: Any, *args: Any) -> None:
        getattr(PlainGroup, name)(self, *args)
        getattr(self._inner, name)(*args)

    method.__name__ = name
    return method


def _shared_property(name: str) -> property:
    plain = getattr(PlainGroup, name)

    def write(self: Any, value: Any) -> None:
        plain.fset(self, value)
        setattr(self._inner, name, value)

    return property(lambda self: getattr(self._inner, name), write if plain.fset else None)


def _twin(plain: Any, group_class: Any) -> Any:
    """Return a wrapping group around a plain one that the backend made, such as the result of a split."""
    if plain is None:
        return None
    group: Any = group_class.__new__(group_class)
    group._adopt(plain)
    for device in plain._device_types:
        backend = plain._get_backend(device)
        kind = getattr(PlainGroup.BackendType, backend.name().upper(), PlainGroup.BackendType.CUSTOM)
        PlainGroup._set_default_backend(group, kind)
        PlainGroup._register_backend(group, device, kind, backend)
    PlainGroup._set_group_name(group, plain.group_name)
    PlainGroup._set_group_desc(group, plain.group_desc)
    if plain.bound_device_id is not None:
        group.bound_device_id = plain.bound_device_id
    return group
