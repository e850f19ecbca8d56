"""A process group that records every call and leaves the work to a plain group inside it.

``torch.distributed`` builds its groups by the name ``distributed_c10d.ProcessGroup``; :func:`make_group_class` gives
the class to put there. Wrapping the group, not the functions, is what catches DDP's reducer, ``fully_shard`` and
functional collectives, which call the group from C++, and keeps ``P2POp``'s identity check on ``dist.isend`` true.
The calls go to the inner group: the base class's own method would run with the interpreter lock held and block the
backend's threads.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import torch
from torch.distributed import distributed_c10d as c10d

from labkit.launch.recording import layout
from labkit.launch.recording.group_calls import GroupCalls
from labkit.launch.recording.operations import BOTH, COLLECTIVES, OWN, POINT_TO_POINT, Operation
from labkit.launch.recording.recorder import Recorder

PlainGroup: Any = c10d.ProcessGroup
_C10D = c10d.__name__


def _caller() -> tuple[FrameType | None, bool]:
    """Return the frame that called the group, and whether that was Python code that gets the handle."""
    try:
        frame = sys._getframe(2)
    except ValueError:
        return None, False
    name = str(frame.f_globals.get("__name__", ""))
    return frame, name == _C10D or not name.startswith("torch.")


def _recorded(operation: Operation) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls: GroupCalls = self._calls
        forward = getattr(self._inner, operation.method)
        operation.check(operation.arguments(args, kwargs), kwargs, calls.size)
        if not calls.recorder.active:
            return forward(*args, **kwargs)
        frame, wrap = _caller()
        call = calls.begin(operation, args, kwargs, frame)
        slot = call.wait_begins(call.start_ns)
        try:
            work = forward(*args, **kwargs)
        except BaseException:
            call.complete(flags=layout.FAILED)
            raise
        finally:
            calls.recorder.log.resumed(slot)
        return calls.posted(call, work, wrap)

    method.__name__ = operation.method
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


class _AnyGroup(type(PlainGroup)):  # type: ignore[misc]
    """Makes every process group an instance of the recording class, as torch expects of the name it is found under."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, PlainGroup)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, PlainGroup)


def make_group_class(recorder: Recorder) -> Any:
    """Return a ProcessGroup class whose groups record to recorder."""

    class RecordingGroup(PlainGroup, metaclass=_AnyGroup):  # type: ignore[misc]
        """A process group that records what it is asked to do."""

        def __init__(self, store: Any, rank: int, size: int) -> None:
            self._adopt(PlainGroup(store, rank, size))

        def _adopt(self, inner: Any) -> None:
            PlainGroup.__init__(self, inner.rank(), inner.size())
            self._inner = inner
            self._calls = GroupCalls(recorder, self, inner)

        def _start_coalescing(self, device: torch.device) -> None:
            self._inner._start_coalescing(device)
            self._calls.coalescing = []

        def _end_coalescing(self, device: torch.device) -> Any:
            calls, self._calls.coalescing = self._calls.coalescing or [], None
            work = self._inner._end_coalescing(device)
            if work is not None:
                return self._calls.handle(calls, work, wrap=True)
            for call in calls:
                call.complete()
            return None

        def split_group(self, *args: Any, **kwargs: Any) -> Any:
            return _recording_twin(self._inner.split_group(*args, **kwargs), type(self))

        def merge_remote_group(self, *args: Any, **kwargs: Any) -> Any:
            return _recording_twin(self._inner.merge_remote_group(*args, **kwargs), type(self))

    own = set(vars(RecordingGroup)) | set(OWN)
    recorded = {op.method: op for op in (*COLLECTIVES, *POINT_TO_POINT)}
    for name in dir(PlainGroup):
        value = getattr(PlainGroup, name)
        if name in own or (name.startswith("__") and name.endswith("__")):
            continue
        if isinstance(value, property):
            setattr(RecordingGroup, name, _shared_property(name))
        elif name in BOTH:
            setattr(RecordingGroup, name, _applied_to_both(name))
        elif name in recorded:
            setattr(RecordingGroup, name, _recorded(recorded[name]))
        elif callable(value) and not isinstance(value, type):
            setattr(RecordingGroup, name, _forwarded(name))
    return RecordingGroup


def _recording_twin(plain: Any, group_class: Any) -> Any:
    """Return a recording group around a plain one that the backend made, such as the result of a split."""
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
