"""A virtual device's streams: what the host has issued, in what order, and when the device runs it.

The host enqueues tasks, on one queue for each stream, and carries on. The device runs each queue in order: a task
begins when it has been issued and the tasks before it are done. Tasks begin and end in the run's order of time
(labkit.simulator.clock), so ranks also meet in collectives in that order.

Two rules say how tasks that run at the same time share the device. Kernels on several streams get equal shares: each of
two kernels takes twice as long. While a collective or a message moves bytes, kernels take 18.9 % longer, and the
communication takes as long as it would alone. A kernel so small that it only costs a launch neither slows others down
nor is slowed down.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from labkit.simulator.clock import Event, Scheduler, Waits
from labkit.simulator.record import JOINED, HeldUp, RankRecord, Row
from labkit.simulator.stream_queue import StreamQueue

TAKES = 0.189
"""How much longer kernels take beside communication: the mean over A100, H100, MI210 and MI250 of Lee et al. 2025,
"Characterizing Compute-Communication Overlap in GPU-Accelerated Distributed Deep Learning" (arXiv:2507.03114)."""


def _nothing() -> None:
    """Do nothing."""


class Task:
    """Something the host has issued to a stream.

    Attributes:
        issued_ns: When. It begins no sooner.
    """

    __slots__ = ("issued_ns",)

    def __init__(self, issued_ns: int) -> None:
        self.issued_ns = issued_ns

    def begin(self, device: DeviceStreams, queue: StreamQueue, now_ns: int) -> bool:
        """Begin, and return whether it is done at once; else the device says when (:meth:`DeviceStreams.done`)."""
        raise NotImplementedError


class StreamEvent(Event):
    """An event recorded on a stream: it happens when everything issued before it is done.

    Attributes:
        queue: The stream.
        blocked: Streams that wait for it.
        cause: The span at whose end it happened.
    """

    __slots__ = ("blocked", "cause", "queue")

    def __init__(self, queue: StreamQueue) -> None:
        """Make an event that has not happened."""
        super().__init__()
        self.queue = queue
        self.blocked: list[StreamQueue] = []
        self.cause: Row | None = None


class RecordEvent(Task):
    """The point on a stream at which an event happens."""

    __slots__ = ("event",)

    def __init__(self, issued_ns: int, event: StreamEvent) -> None:
        super().__init__(issued_ns)
        self.event = event

    def begin(self, device: DeviceStreams, queue: StreamQueue, now_ns: int) -> bool:
        """Let the event happen now."""
        self.event.cause = queue.cause
        device.happened(self.event, now_ns)
        return True


class HostCallback(Task):
    """Call the host when the device reaches this point of a stream."""

    __slots__ = ("call",)

    def __init__(self, issued_ns: int, call: Callable[[int], object]) -> None:
        super().__init__(issued_ns)
        self.call = call

    def begin(self, device: DeviceStreams, queue: StreamQueue, now_ns: int) -> bool:
        """Call it with the time."""
        self.call(now_ns)
        return True


class WaitEvent(Task):
    """Hold a stream until an event of another one has happened."""

    __slots__ = ("event", "row", "since_ns")

    def __init__(self, issued_ns: int, event: StreamEvent, row: Row | None) -> None:
        super().__init__(issued_ns)
        self.event, self.row, self.since_ns = event, row, issued_ns

    def begin(self, device: DeviceStreams, queue: StreamQueue, now_ns: int) -> bool:
        """Return whether the event has happened."""
        happened = self.event.ready_ns is not None and self.event.ready_ns <= now_ns
        if self.row is not None:
            self.row.start_ns = now_ns
            if happened:
                self.row.end_ns = now_ns
        if not happened:
            self.since_ns = now_ns
            self.event.blocked.append(queue)
        return happened

    def over(self, queue: StreamQueue, now_ns: int) -> None:
        """Note the end of a wait."""
        if self.row is not None:
            self.row.end_ns = now_ns
        cause = self.event.cause
        if cause is not None and now_ns > self.since_ns:
            queue.cause, queue.held = cause, (cause, self.since_ns, now_ns)


class Kernel(Task):
    """An operator's kernel.

    Attributes:
        left_ns: What is still to be done, in ns on a device that does nothing else.
        fills: Whether it shares the device with others; a kernel that only costs a launch does not.
    """

    __slots__ = ("fills", "left_ns", "queue", "record", "row", "since_ns", "slow", "turn")

    def __init__(self, issued_ns: int, duration_ns: int, row: Row, record: RankRecord, *, fills: bool) -> None:
        super().__init__(issued_ns)
        self.left_ns: float = duration_ns
        self.row, self.record, self.fills = row, record, fills
        self.queue: StreamQueue | None = None
        self.since_ns, self.slow, self.turn = 0, 0.0, 0

    def begin(self, device: DeviceStreams, queue: StreamQueue, now_ns: int) -> bool:
        """Begin; its end depends on what runs beside it."""
        row, last = self.row, queue.last
        self.queue, self.since_ns = queue, now_ns
        if (
            last is not None and row.name == JOINED and last.end_ns == now_ns
            and last.phase == row.phase and last.thread == self.record.number
        ):  # fmt: skip
            last.bytes += row.bytes
            self.row = last
        else:
            row.start_ns, row.stream = now_ns, queue.name
            queue.last = self.record.add(row)
        device.began(queue, self.row, now_ns)
        device.kernels.append(self)
        device.share(now_ns)
        return False


class Copy(Task):
    """Bytes between the host's memory and the device's, on one of the engines that only copy."""

    __slots__ = ("duration_ns", "engine", "row")

    def __init__(self, issued_ns: int, duration_ns: int, row: Row, engine: str) -> None:
        super().__init__(issued_ns)
        self.duration_ns, self.row, self.engine = duration_ns, row, engine

    def begin(self, device: DeviceStreams, queue: StreamQueue, now_ns: int) -> bool:
        """Begin when the engine is free: it does one copy at a time."""
        begins_ns = max(now_ns, device.engines.get(self.engine, 0))
        ends_ns = device.engines[self.engine] = begins_ns + self.duration_ns
        self.row.start_ns, self.row.end_ns, self.row.stream = begins_ns, ends_ns, queue.name
        device.began(queue, self.row, now_ns)
        device.done(queue, ends_ns)
        return False


class Communication(Task):
    """This rank's part in a collective, or its end of a message: a kernel that waits for the other ranks.

    Attributes:
        row: Its span; the network decides when it ends.
        reached: Called when the device begins it.
        waiting: What a report says of a device that waits here.
        event: Happens when it is done.
    """

    __slots__ = ("event", "reached", "row", "waiting")

    def __init__(
        self, issued_ns: int, row: Row, reached: Callable[[], None], waiting: Waits, event: StreamEvent
    ) -> None:
        super().__init__(issued_ns)
        self.row, self.reached, self.waiting, self.event = row, reached, waiting, event

    def begin(self, device: DeviceStreams, queue: StreamQueue, now_ns: int) -> bool:
        """Begin to wait for the others."""
        self.row.start_ns, self.row.stream = now_ns, queue.name
        device.began(queue, self.row, now_ns)
        reached, self.reached = self.reached, _nothing  # which refers to this
        reached()
        return False


class DeviceStreams:
    """The device of one rank.

    Attributes:
        now_ns: When it last began or ended anything.
        default: The default stream.
        chosen: The default stream and those that the program made.
        kernels: Those that run now.
        num_moving: How many collectives and messages move bytes now.
        engines: Each copy engine -> when it is free.
        ending: Called before anything more is issued: until then, further work may join the last task.
    """

    def __init__(self, scheduler: Scheduler, held: list[HeldUp]) -> None:
        """Begin with nothing to do; ``held`` gets the waits of streams."""
        self._scheduler, self._held = scheduler, held
        self.now_ns = 0
        self.default = StreamQueue()
        self.chosen = [self.default]
        self.kernels: list[Kernel] = []
        self.num_moving = 0
        self.engines: dict[str, int] = {}
        self.ending: list[Callable[[], None]] = []
        self._groups: dict[object, StreamQueue] = {}

    # ---- what the host does

    def add(self, name: str) -> StreamQueue:
        """Return a new stream."""
        self.chosen.append(StreamQueue(name))
        return self.chosen[-1]

    @property
    def queues(self) -> list[StreamQueue]:
        """All streams, those of groups too."""
        return [*self.chosen, *self._groups.values()]

    def of_group(self, key: object, name: str) -> StreamQueue:
        """Return the stream on which a process group communicates."""
        queue = self._groups.get(key)
        if queue is None:
            queue = self._groups[key] = StreamQueue(name)
        return queue

    def give(self, queue: StreamQueue, task: Task) -> None:
        """Issue a task to a stream."""
        for end in self.ending:
            end()
        queue.tasks.append(task)
        if queue.at_work is None and not queue.looked_at:
            self._look_later(queue, task.issued_ns)

    def record_event(self, queue: StreamQueue, issued_ns: int) -> StreamEvent:
        """Return an event that happens when everything issued to a stream so far is done."""
        event = StreamEvent(queue)
        self.give(queue, RecordEvent(issued_ns, event))
        return event

    def wait(self, queue: StreamQueue, event: StreamEvent, issued_ns: int, row: Row | None = None) -> None:
        """Let everything issued to a stream from now on wait for an event."""
        if event.queue is not queue:
            self.give(queue, WaitEvent(issued_ns, event, row))
        elif row is not None:
            row.end_ns = row.start_ns

    def standing(self, queue: StreamQueue) -> Waits | None:
        """Return the communication that holds a stream up, directly or on a stream it waits for; None for none."""
        seen: list[StreamQueue] = []
        while queue not in seen:
            seen.append(queue)
            task = queue.at_work
            if isinstance(task, Communication):
                return task.waiting
            if isinstance(task, WaitEvent):
                queue = task.event.queue
        return None

    # ---- what the device does

    def done(self, queue: StreamQueue, at_ns: int) -> None:
        """Begin the next task of a stream at this time, when the current one is done."""
        self._scheduler.act(at_ns, partial(self._go_on, queue, at_ns))

    def finish(self, communication: Communication, moves_ns: int, ends_ns: int) -> None:
        """Let communication move its bytes from the first of these times on, and complete at the second."""
        self._scheduler.act(moves_ns, partial(self._move, moves_ns))
        self._scheduler.act(ends_ns, partial(self._finish, communication, ends_ns))

    def began(self, queue: StreamQueue, row: Row, now_ns: int) -> None:
        """Note what a stream does now, and that it could not sooner where it waited until now."""
        if queue.held is not None and queue.held[2] == now_ns:
            self._held.append(HeldUp(row, *queue.held))
        queue.cause, queue.held = row, None

    def happened(self, event: StreamEvent, now_ns: int) -> None:
        """Let an event happen, and wake the streams that wait for it."""
        self._scheduler.fire(event, now_ns)
        blocked, event.blocked = event.blocked, []
        for queue in blocked:
            task = queue.at_work
            assert isinstance(task, WaitEvent)
            task.over(queue, now_ns)
            self._go_on(queue, now_ns)

    def share(self, now_ns: int) -> None:
        """Set the speed of every running kernel from now on."""
        kernels = self.kernels
        filling = sum(kernel.fills for kernel in kernels) if len(kernels) > 1 else 1
        slow = filling * (1.0 + TAKES) if self.num_moving else float(filling)
        for kernel in kernels:
            mine = slow if kernel.fills else 1.0
            if mine == kernel.slow:
                continue
            if now_ns > kernel.since_ns:
                kernel.left_ns -= (now_ns - kernel.since_ns) / kernel.slow
                kernel.since_ns = now_ns
            kernel.slow = mine
            kernel.turn += 1
            ends_ns = now_ns + max(math.ceil(kernel.left_ns * mine), 0)
            self._scheduler.act(ends_ns, partial(self._end, kernel, kernel.turn, ends_ns))

    def _end(self, kernel: Kernel, turn: int, now_ns: int) -> None:
        if kernel.turn != turn:
            return  # it became slower or faster since
        now_ns = max(now_ns, self.now_ns)
        kernel.row.end_ns = now_ns
        self.kernels.remove(kernel)
        if self.kernels:
            self.share(now_ns)
        assert kernel.queue is not None
        self._go_on(kernel.queue, now_ns)

    def _move(self, now_ns: int) -> None:
        self.num_moving += 1
        self.share(max(now_ns, self.now_ns))

    def _finish(self, communication: Communication, now_ns: int) -> None:
        now_ns = max(now_ns, self.now_ns)
        self.num_moving -= 1
        self.share(now_ns)
        queue, communication.event.cause = communication.event.queue, communication.row
        self.happened(communication.event, now_ns)
        self._go_on(queue, now_ns)

    def _look_later(self, queue: StreamQueue, at_ns: int) -> None:
        queue.looked_at = True
        self._scheduler.act(at_ns, partial(self._look, queue, at_ns))

    def _go_on(self, queue: StreamQueue, now_ns: int) -> None:
        queue.at_work = None
        self._look(queue, now_ns)

    def _look(self, queue: StreamQueue, now_ns: int) -> None:
        """Begin whatever can begin on a stream."""
        queue.looked_at = False
        if now_ns > self.now_ns:
            self.now_ns = now_ns
        else:
            now_ns = self.now_ns
        tasks = queue.tasks
        while tasks:
            task = tasks[0]
            if task.issued_ns > now_ns:
                self._look_later(queue, task.issued_ns)
                return
            queue.at_work = tasks.popleft()
            if not task.begin(self, queue, now_ns):
                return
            queue.at_work = None
