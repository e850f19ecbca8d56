"""The recording of one process group's calls: its ranks, the number of each collective, calls being coalesced."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

from labkit.launch.recording import layout
from labkit.launch.recording.call import COMMUNICATION, Call, buffer_version
from labkit.launch.recording.device_times import nccl_device
from labkit.launch.recording.recorded_work import RecordedWork
from labkit.launch.recording.recorder import Recorder
from labkit.torch_port.group_tables import batch_codes, entry_codes
from labkit.torch_port.operations import Operation
from labkit.torch_port.wrapped_group import gets_handles, global_ranks

_BATCHES = batch_codes()
_ENTRIES = entry_codes() | _BATCHES


class RecordedGroup:
    """The recording of one group: numbers its collectives and knows its ranks."""

    def __init__(self, recorder: Recorder, outer: Any, inner: Any) -> None:
        self.recorder, self.outer, self.inner = recorder, outer, inner
        self.size: int = inner.size()
        self._coalescing: list[Call] | None = None
        self._number = 0
        self._ranks: list[int] | None = None
        self._described = 0

    def global_rank(self, group_rank: int) -> int:
        """Return the global rank of a rank of this group."""
        ranks = self._global_ranks()
        return ranks[group_rank] if 0 <= group_rank < len(ranks) else group_rank

    def _global_ranks(self) -> list[int]:
        if self._ranks is None:
            self._ranks = global_ranks(self.outer)
            if self._ranks is None:
                return list(range(self.size))
            ranks = ",".join(map(str, self._ranks))
            self._described = self.recorder.log.intern(f"{self.outer.group_name}|{ranks}")
        return self._ranks

    def called(
        self, operation: Operation, forward: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Carry a call out by `forward` and record it; return the handle for the caller.

        Raises:
            NoSuchRank: If it names a rank that the group does not have, of which gloo would read beyond its array.
            RuntimeError: If gloo would take the memory between a tensor's elements for elements.
        """
        arguments = operation.arguments(args, kwargs)
        operation.check(arguments, kwargs, self.size)
        if not self.recorder.active:
            return forward(*args, **kwargs)
        frame, wrap = _caller()
        blocking = operation.is_blocking(args, kwargs)
        root, meaning = operation.root(arguments, kwargs), operation.meaning(arguments, kwargs)
        call = self._begin(operation, arguments, root, meaning, blocking, frame)
        slot = call.wait_begins(call.start_ns)
        try:
            work = forward(*args, **kwargs)
        except BaseException:
            call.complete(flags=layout.FAILED)
            raise
        finally:
            self.recorder.log.resumed(slot)
        return self._posted(call, work, wrap)

    def coalescing_begins(self) -> None:
        """Take the calls from now on for parts of one."""
        self._coalescing = []

    def coalescing_ends(self, work: Any) -> Any:
        """Return the handle of all calls since; `work` is the plain group's, None where it has none."""
        calls, self._coalescing = self._coalescing or [], None
        if work is not None:
            return self._handle(calls, work, wrap=True)
        for call in calls:
            call.complete()
        return None

    def _begin(
        self, operation: Operation, arguments: list[Any], root: int | None, meaning: str, blocking: bool,
        frame: FrameType | None,
    ) -> Call:  # fmt: skip
        """Return the call just posted, written to the log as open."""
        recorder, log = self.recorder, self.recorder.log
        source, entry = recorder.source_and_entry(frame, _ENTRIES)
        self._global_ranks()
        peer, tag, number = -1, 0, 0
        point_to_point, batched = operation.point_to_point, entry in _BATCHES.values()
        entry = "" if batched else entry
        if point_to_point:
            tag = int(arguments[-1])
            peer = self.global_rank(int(arguments[1])) if len(arguments) == 3 else -1
            kind, blocking = entry or operation.kind, bool(entry)
        else:
            number, self._number = self._number, self._number + 1
            kind = operation.kind
        interned = log.intern(kind)
        call = Call(
            recorder, -1, interned, operation.size(arguments, self.size), peer, tag, self._described, source,
            blocking, point_to_point, flags=layout.BLOCKING * blocking | layout.BATCHED * batched,
            root=-1 if root is None else self.global_rank(root),
        )  # fmt: skip
        if point_to_point and operation.method == "send":
            call.tensor = arguments[0][0]
            call.version = buffer_version(call.tensor)
        elif point_to_point and peer < 0:
            call.sender = self.global_rank
        device = nccl_device(self.inner, arguments)
        if device is not None:
            call.completes_on_wait = False
            call.flags |= layout.DEVICE_TIME
            call.device, call.kept = device, arguments
            call.device_start = recorder.times_of_devices().started(device)
        call.start_ns = time.monotonic_ns()
        call.record = log.begin(
            call.start_ns, COMMUNICATION, interned, interned, num_bytes=call.num_bytes, peer=peer, tag=tag,
            group=self._described, number=number, source=source, link=log.intern(meaning),
            flags=call.flags | layout.NOT_WAITED * point_to_point,
        )  # fmt: skip
        return call

    def _posted(self, call: Call, work: Any, wrap: bool) -> Any:
        """Return the handle for the caller once the backend has accepted the call."""
        if self._coalescing is not None:
            self._coalescing.append(call)
            return work
        if work is None:
            if call.device_start is None or self.recorder.device_times is None:
                call.complete()
            else:
                self.recorder.device_times.finished(call, None, None)
            return None
        return self._handle([call], work, wrap)

    def _handle(self, calls: list[Call], work: Any, wrap: bool) -> Any:
        """Return the handle that stands for all these calls."""
        device_times = self.recorder.device_times
        for call in calls:
            if call.device_start is not None and device_times is not None:
                device_times.finished(call, work, call.kept)
                call.kept = None
        if calls and calls[0].blocking and not calls[0].point_to_point:
            self._wait(calls, work)
            return work
        if calls and calls[0].completes_on_wait and not calls[0].point_to_point:
            try:
                work.get_future().add_done_callback(lambda _: _complete(calls))
            except RuntimeError:  # a backend without futures: only wait() tells
                wrap = True
        # A send or receive has no future either, so its handle is always ours.
        return RecordedWork(work, calls) if calls and (wrap or calls[0].point_to_point) else work

    def _wait(self, calls: list[Call], work: Any) -> None:
        log, first = self.recorder.log, calls[0]
        slot = first.wait_begins(first.start_ns)
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


def _complete(calls: list[Call]) -> None:
    now_ns = time.monotonic_ns()
    for call in calls:
        call.complete(now_ns)


def _caller() -> tuple[FrameType | None, bool]:
    """Return the frame that called the group, and whether that was Python code that gets the handle."""
    try:
        frame = sys._getframe(3)
    except ValueError:
        return None, False
    return frame, gets_handles(str(frame.f_globals.get("__name__", "")))
