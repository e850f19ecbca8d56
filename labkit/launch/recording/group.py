"""A process group that records every call and leaves the work to a plain group inside it.

``torch.distributed`` builds its groups by the name ``distributed_c10d.ProcessGroup``; :func:`make_group_class` gives
the class to put there. Wrapping the group, not the functions, is what catches DDP's reducer, ``fully_shard`` and
functional collectives, which call the group from C++, and keeps ``P2POp``'s identity check on ``dist.isend`` true.
The calls go to the inner group: the base class's own method would run with the interpreter lock held and block the
backend's threads.
"""

from __future__ import annotations

import sys
import time
from types import CodeType, FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from labkit.launch.recording import layout
from labkit.launch.recording.call import COMMUNICATION, Call, buffer_version
from labkit.launch.recording.device_times import DeviceTimes, nccl_device
from labkit.launch.recording.operations import BOTH, COLLECTIVES, OWN, POINT_TO_POINT, Operation
from labkit.launch.recording.recorder import Recorder
from labkit.launch.recording.work import RecordedWork

PlainGroup: type = c10d.ProcessGroup
_C10D = c10d.__name__


def _code(function: Any) -> CodeType:
    return getattr(function, "__wrapped__", function).__code__


_ENTRIES = {_code(dist.send): "send", _code(dist.recv): "recv"}


def _caller() -> tuple[FrameType | None, bool]:
    """Return the frame that called the group, and whether that was Python code that gets the handle."""
    try:
        frame = sys._getframe(2)
    except ValueError:
        return None, False
    name = str(frame.f_globals.get("__name__", ""))
    return frame, name == _C10D or not name.startswith("torch.")


class GroupCalls:
    """The recording of one group: numbers its collectives and knows its ranks.

    Attributes:
        coalescing: The calls made between start and end of coalescing, None outside.
    """

    def __init__(self, recorder: Recorder, outer: Any, inner: Any) -> None:
        self.recorder, self.outer, self.inner = recorder, outer, inner
        self.coalescing: list[Call] | None = None
        self._number = 0
        self._ranks: list[int] | None = None
        self._described = 0

    def global_rank(self, group_rank: int) -> int:
        """Return the global rank of a rank of this group."""
        ranks = self._global_ranks()
        return ranks[group_rank] if 0 <= group_rank < len(ranks) else group_rank

    def _global_ranks(self) -> list[int]:
        if self._ranks is None:
            known = c10d._world.pg_group_ranks.get(self.outer)
            if not known:
                return list(range(self.outer.size()))
            by_rank = {group_rank: global_rank for global_rank, group_rank in known.items()}
            self._ranks = [by_rank[rank] for rank in range(len(by_rank))]
            ranks = ",".join(map(str, self._ranks))
            self._described = self.recorder.log.intern(f"{self.outer.group_name}|{ranks}")
        return self._ranks

    def begin(
        self, operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType | None
    ) -> Call:
        """Return the call just posted, written to the log as open."""
        recorder, log = self.recorder, self.recorder.log
        arguments = operation.arguments(args, kwargs)
        source, entry = recorder.source_and_entry(frame, _ENTRIES)
        self._global_ranks()
        peer, tag, number = -1, 0, 0
        point_to_point = operation in POINT_TO_POINT
        if point_to_point:
            tag = int(arguments[-1])
            peer = self.global_rank(int(arguments[1])) if len(arguments) == 3 else -1
            kind, blocking = entry or operation.kind, bool(entry)
        else:
            number, self._number = self._number, self._number + 1
            kind, blocking = operation.kind, _is_blocking(operation, args, kwargs)
        interned = log.intern(kind)
        call = Call(
            recorder, -1, interned, operation.size(arguments, self.outer.size()), peer, tag, self._described, source,
            blocking, point_to_point, flags=layout.BLOCKING if blocking else 0,
        )  # fmt: skip
        if point_to_point and operation.method == "send":
            call.tensor = arguments[0][0]
            call.version = buffer_version(call.tensor)
        elif point_to_point and peer < 0:
            call.sender = self.global_rank
        device = nccl_device(self.inner, arguments)
        if device is not None:
            call.completes_on_wait = False
            if recorder.device_times is None:
                recorder.device_times = DeviceTimes(log)
            call.device = device
            call.device_start = recorder.device_times.started(device)
        call.record = log.begin(
            time.monotonic_ns(), COMMUNICATION, interned, interned, num_bytes=call.num_bytes, peer=peer, tag=tag,
            group=self._described, number=number, source=source, flags=call.flags | layout.NOT_WAITED * point_to_point,
        )  # fmt: skip
        return call

    def posted(self, call: Call, work: Any, wrap: bool) -> Any:
        """Return the handle for the caller once the backend has accepted the call."""
        if self.coalescing is not None:
            self.coalescing.append(call)
            return work
        if work is None:
            call.complete()
            return None
        return self.handle([call], work, wrap)

    def handle(self, calls: list[Call], work: Any, wrap: bool) -> Any:
        """Return the handle that stands for all these calls."""
        device_times = self.recorder.device_times
        for call in calls:
            if call.device_start is not None and device_times is not None:
                device_times.finished(call, work)
        if calls and calls[0].blocking and not calls[0].point_to_point:
            self._wait(calls, work)
            return work
        if calls and calls[0].completes_on_wait and not calls[0].point_to_point:
            work.get_future().add_done_callback(lambda _: [call.complete() for call in calls])
        return RecordedWork(work, calls) if wrap and calls else work

    def _wait(self, calls: list[Call], work: Any) -> None:
        log, first = self.recorder.log, calls[0]
        slot = first.wait_begins(time.monotonic_ns())
        failed = layout.FAILED
        try:
            work.wait()
            failed = 0
        finally:
            end_ns = time.monotonic_ns()
            log.resumed(slot)
            for call in calls:
                if call.completes_on_wait or failed:
                    call.complete(end_ns, failed)


def _is_blocking(operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if operation.method == "monitored_barrier":
        return True
    for value in (*reversed(args), *kwargs.values()):
        asynchronous = getattr(value, "asyncOp", None)
        if asynchronous is not None:
            return not asynchronous
    return False


def _recorded(operation: Operation) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls: GroupCalls = self._calls
        forward = getattr(self._inner, operation.method)
        if not calls.recorder.active:
            return forward(*args, **kwargs)
        frame, wrap = _caller()
        call = calls.begin(operation, args, kwargs, frame)
        slot = call.wait_begins(time.monotonic_ns())
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


def make_group_class(recorder: Recorder) -> type:
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


def _recording_twin(plain: Any, group_class: type) -> Any:
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
