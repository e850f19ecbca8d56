"""One call of a communication method, from the moment it was posted until it is known to be complete."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from labkit.launch.recording import layout
from labkit.launch.recording.recorder import Recorder
from labkit.timeline.span import Lane
from labkit.torch_port.handles import source_of
from labkit.torch_port.tensors import version_of

CHECKSUM_BYTES = 1 << 14
NUM_PIECES = 16
COMMUNICATION = int(Lane.COMMUNICATION)
HOST = int(Lane.HOST)


@dataclass(eq=False)
class Call:
    """What is known of a call while it is under way.

    Attributes:
        recorder: Where it is written.
        record: Index of its record in the log, -1 if dropped.
        kind: Interned name of the operation.
        num_bytes: Payload.
        peer: Global rank of the other end, -1 for collectives and for a receive from any rank.
        tag: Tag of a point-to-point call.
        group: Interned description of the group.
        source: Interned file:line of the learner's call.
        blocking: Whether the caller stays in the call (``dist.send``, ``async_op=False``).
        completes_on_wait: Whether the operation is complete when ``wait()`` returns; not so where a device runs it.
        point_to_point: Whether this is a send or a receive, whose completion only ``wait()`` tells.
        tensor: An isend's buffer, kept to see whether it was changed in flight.
        version: What told the buffer's content when it was posted.
        start_ns: When it was posted.
        device: The GPU that carries it out, None where the host sees the true times.
        device_start: The event before it on the caller's stream.
        kept: Its tensors, for as long as the GPU reads or writes them.
        flags: See layout.
        remote: Whether it is a call of torch.distributed.rpc.
        done: Whether the record is closed.
        end_ns: When it was, 0 before.
        waited: Whether a wait for a future of it is on record.
        root: Global rank that a collective names, as broadcast its source; -1 where it names none.
        sender: Turns the group rank a receive took its message from into a global rank; None where the peer is known.
    """

    recorder: Recorder
    record: int
    kind: int
    num_bytes: int
    peer: int
    tag: int
    group: int
    source: int
    blocking: bool
    point_to_point: bool
    completes_on_wait: bool = True
    tensor: Any = None
    version: int = -1
    sender: Callable[[int], int] | None = None
    start_ns: int = 0
    device: Any = None
    device_start: Any = None
    kept: Any = None
    flags: int = 0
    remote: bool = False
    done: bool = field(default=False, repr=False)
    end_ns: int = 0
    waited: bool = False
    root: int = -1

    def wait_begins(self, since_ns: int) -> int:
        """Say that this thread blocks from now on; return the wait slot. A blocking call counts from its begin.

        Remote calls do not say so: ranks that all wait for one may have others to serve, and are not stuck.
        """
        if self.remote:
            return -1
        since_ns = self.start_ns if self.blocking else since_ns
        return self.recorder.log.waiting(
            since_ns, self.kind, self.num_bytes, self.peer, self.group, self.source, self.tag, self.record, self.root
        )

    def wait_returned(self, work: Any, begin_ns: int, end_ns: int, flags: int, *, record_wait: bool) -> None:
        """Record that ``wait()`` returned, as a span of its own where the call itself did not block."""
        log, self.waited = self.recorder.log, True
        if not self.blocking and record_wait:
            wait = log.intern("wait")
            index = log.begin(
                begin_ns, HOST, wait, wait, num_bytes=self.num_bytes, peer=self.peer, tag=self.tag, group=self.group,
                source=self.source, link=self.record,
            )  # fmt: skip
            log.end(index, end_ns, HOST, flags | (layout.IN_CALLBACK if self.recorder.futures.in_callback else 0))
        if self.done or not (self.completes_on_wait or flags):
            return
        if self.sender is not None and not flags:
            log.set_peer(self.record, self.sender(source_of(work)))
        if self.tensor is not None and buffer_version(self.tensor) != self.version:
            flags |= layout.BUFFER_CHANGED
        self.tensor = None
        self.complete(end_ns, flags)

    def joined(self, end_ns: int, flags: int) -> None:
        """Note that a wait for a future of the call returned; what raised may have been a callback, or the call."""
        if self.completes_on_wait:
            self.complete(end_ns, flags if self.blocking else 0)

    def complete(self, end_ns: int | None = None, flags: int = 0) -> None:
        """Close the record now, or at the given time; once it is closed, only what went wrong is added."""
        if not self.done or flags & ~self.flags:
            self.done, self.end_ns, self.flags = True, self.end_ns or end_ns or time.monotonic_ns(), self.flags | flags
            self.recorder.log.end(self.record, self.end_ns, COMMUNICATION, self.flags)


def buffer_version(tensor: Any) -> int:
    """Return a number that differs once the buffer was written.

    On the host it is a checksum of the content, of sixteen evenly spaced pieces where the buffer is large: a version
    counter is shared by all views of a storage, and a ring that sends one chunk while it adds into another changes
    nothing in flight. Elsewhere it is the version counter of a tensor that has its storage to itself, otherwise -1: a
    change may then go unseen, but nobody is accused of one.
    """
    if tensor.device.type == "cpu" and tensor.is_contiguous():
        content = tensor.detach().reshape(-1).view(torch.uint8).numpy()
        if content.nbytes > CHECKSUM_BYTES:
            rows = content[: content.nbytes // NUM_PIECES * NUM_PIECES].reshape(NUM_PIECES, -1)
            content = rows[:, : CHECKSUM_BYTES // NUM_PIECES].copy()
        return zlib.crc32(content)
    shared = tensor.untyped_storage().nbytes() > tensor.nbytes
    return -1 if shared or tensor.is_inference() else version_of(tensor)
