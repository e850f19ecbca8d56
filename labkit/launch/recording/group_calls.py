"""What the recording of one process group knows: its ranks, the number of each collective, calls being coalesced."""

from __future__ import annotations

import time
from types import CodeType, FrameType
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from labkit.launch.recording import layout
from labkit.launch.recording.call import COMMUNICATION, Call, buffer_version
from labkit.launch.recording.device_times import DeviceTimes, nccl_device
from labkit.launch.recording.operations import Operation
from labkit.launch.recording.recorder import Recorder
from labkit.launch.recording.work import RecordedWork


def _code(function: Any) -> CodeType:
    code: CodeType = getattr(function, "__wrapped__", function).__code__
    return code


_ENTRIES = {id(_code(dist.send)): "send", id(_code(dist.recv)): "recv"}
"""Functions that block, told from isend and irecv by being on the stack."""


class GroupCalls:
    """The recording of one group: numbers its collectives and knows its ranks.

    Attributes:
        coalescing: The calls made between start and end of coalescing, None outside.
    """

    def __init__(self, recorder: Recorder, outer: Any, inner: Any) -> None:
        self.recorder, self.outer, self.inner = recorder, outer, inner
        self.size: int = inner.size()
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
                return list(range(self.size))
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
        point_to_point = operation.point_to_point
        if point_to_point:
            tag = int(arguments[-1])
            peer = self.global_rank(int(arguments[1])) if len(arguments) == 3 else -1
            kind, blocking = entry or operation.kind, bool(entry)
        else:
            number, self._number = self._number, self._number + 1
            kind, blocking = operation.kind, _is_blocking(operation, args, kwargs)
        interned = log.intern(kind)
        call = Call(
            recorder, -1, interned, operation.size(arguments, self.size), peer, tag, self._described, source,
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
        call.start_ns = time.monotonic_ns()
        call.record = log.begin(
            call.start_ns, COMMUNICATION, interned, interned, num_bytes=call.num_bytes, peer=peer, tag=tag,
            group=self._described, number=number, source=source, flags=call.flags | layout.NOT_WAITED * point_to_point,
        )  # fmt: skip
        return call

    def posted(self, call: Call, work: Any, wrap: bool) -> Any:
        """Return the handle for the caller once the backend has accepted the call."""
        if self.coalescing is not None:
            self.coalescing.append(call)
            return work
        if work is None:
            if call.device_start is None or self.recorder.device_times is None:
                call.complete()
            else:
                self.recorder.device_times.finished(call, None)
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


def _is_blocking(operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if operation.method == "monitored_barrier":
        return True
    for value in (*reversed(args), *kwargs.values()):
        asynchronous = getattr(value, "asyncOp", None)
        if asynchronous is not None:
            return not asynchronous
    return False
