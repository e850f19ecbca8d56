"""A virtual device's streams: what the host has issued, in what order, and when the device does it.

The host puts tasks into queues, one for each stream, and goes on. The device takes them in the order of each queue:
a task begins when those before it are done and it has been issued. Nothing of this happens before its time has come
in the run as a whole (labkit.simulator.clock), so ranks meet in collectives in the order of time.

What runs at the same time shares the device by two rules. Kernels of several streams have equal parts of it: of two,
each takes twice as long. While bytes of a collective or a message move, kernels take 18.9 % longer, and it takes as
long as alone. Kernels so small that they take a kernel's least time disturb nobody and are not disturbed.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from functools import partial

from labkit.simulator.clock import Event, Scheduler, Waits
from labkit.simulator.record import JOINED, RankRecord, Row

TAKES = 0.189
"""How much longer kernels take beside communication: the mean over A100, H100, MI210 and MI250 of Lee et al. 2025,
"Characterizing Compute-Communication Overlap in GPU-Accelerated Distributed Deep Learning" (arXiv:2507.03114)."""


def _nothing() -> None:
    """Do nothing."""


class StreamQueue:
    """What the host issued to a stream and the device has not begun.

    Attributes:
        name: What the timeline calls it, "" for the stream there is without a choice.
        tasks: In order.
        at_work: What the device does of it now, or stands at.
        looked_at: Whether the device will look at it again when its first task has been issued.
        last: The span of its last kernel.
    """

    __slots__ = ("at_work", "last", "looked_at", "name", "tasks")

    def __init__(self, name: str = "") -> None:
        """Begin empty."""
        self.name = name
        self.tasks: deque[Task] = deque()
        self.at_work: Task | None = None
        self.looked_at = False
        self.last: Row | None = None


class Task:
    """Something a host has issued.

    Attributes:
        issued_ns: When; it begins no sooner.
    """

    __slots__ = ("issued_ns",)

    def __init__(self, issued_ns: int) -> None:
        self.issued_ns = issued_ns

    def begin(self, device: DeviceStreams, queue: StreamQueue, now_ns: int) -> bool:
        """Begin, and return whether it is done at once; else the device says when (:meth:`DeviceStreams.done`)."""
        raise NotImplementedError


class Mark(Event):
    """A point in a queue, which happens when all before it is done.

    Attributes:
        queue: The queue.
        blocked: Queues that wait for it.
    """

    __slots__ = ("blocked", "queue")

    def __init__(self, queue: StreamQueue) -> None:
        """Make a point that has not happened."""
        super().__init__()
        self.queue = queue
        self.blocked: list[StreamQueue] = []


class Reach(Task):
    """Let a mark happen."""

    __slots__ = ("mark",)

    def __init__(self, issued_ns: int, mark: Mark) -> None:
        super().__init__(issued_ns)
        self.mark = mark

    def begin(self, device: DeviceStreams, queue: StreamQueue, now_ns: int) -> bool:
        """Let it happen now."""
        device.happened(self.mark, now_ns)
        return True


class Note(Task):
    """Tell the host's record when the device came here."""

    __slots__ = ("call",)

    def __init__(self, issued_ns: int, call: Callable[[int], object]) -> None:
        super().__init__(issued_ns)
        self.call = call

    def begin(self, device: DeviceStreams, queue: StreamQueue, now_ns: int) -> bool:
        """Tell it."""
        self.call(now_ns)
        return True


class WaitFor(Task):
    """Go on when a mark has happened."""

    __slots__ = ("mark", "row")

    def __init__(self, issued_ns: int, mark: Mark, row: Row | None) -> None:
        super().__init__(issued_ns)
        self.mark, self.row = mark, row

    def begin(self, device: DeviceStreams, queue: StreamQueue, now_ns: int) -> bool:
        """Return whether it has happened."""
        happened = self.mark.ready_ns is not None and self.mark.ready_ns <= now_ns
        if self.row is not None:
            self.row.start_ns = now_ns
            if happened:
                self.row.end_ns = now_ns
        if not happened:
            self.mark.blocked.append(queue)
        return happened

    def over(self, now_ns: int) -> None:
        """Note that it has happened after a wait."""
        if self.row is not None:
            self.row.end_ns = now_ns


class Kernel(Task):
    """An operator.

    Attributes:
        left_ns: What is still to be done, as ns on the device alone.
        fills: Whether it shares the device with others; what takes a kernel's least time does not.
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
        """Begin when the engine is free; it serves one copy after the other."""
        begins_ns = max(now_ns, device.engines.get(self.engine, 0))
        ends_ns = device.engines[self.engine] = begins_ns + self.duration_ns
        self.row.start_ns, self.row.end_ns, self.row.stream = begins_ns, ends_ns, queue.name
        device.done(queue, ends_ns)
        return False


class Talk(Task):
    """This rank's part in a collective, or its end of a message, as a kernel that waits for the others.

    Attributes:
        row: Its span, whose end the network knows.
        reached: Called when the device has come here.
        waiting: What a report says of a device that stands here.
        mark: Happens when it is done.
    """

    __slots__ = ("mark", "reached", "row", "waiting")

    def __init__(self, issued_ns: int, row: Row, reached: Callable[[], None], waiting: Waits, mark: Mark) -> None:
        super().__init__(issued_ns)
        self.row, self.reached, self.waiting, self.mark = row, reached, waiting, mark

    def begin(self, device: DeviceStreams, queue: StreamQueue, now_ns: int) -> bool:
        """Begin to wait for the others."""
        self.row.start_ns, self.row.stream = now_ns, queue.name
        reached, self.reached = self.reached, _nothing  # which refers to this
        reached()
        return False


class DeviceStreams:
    """The device of one rank.

    Attributes:
        now_ns: When it last began or ended anything.
        default: The stream that work goes to where none is chosen.
        chosen: This one and those that the program made.
        kernels: Those at work.
        talks: How many collectives and messages move bytes.
        engines: Each that copies -> when it is free.
        ending: Called before anything more is issued, as what is issued last is still joined by others.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        """Begin with nothing to do."""
        self._scheduler = scheduler
        self.now_ns = 0
        self.default = StreamQueue()
        self.chosen = [self.default]
        self.kernels: list[Kernel] = []
        self.talks = 0
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
        """Return the stream on which a group communicates."""
        queue = self._groups.get(key)
        if queue is None:
            queue = self._groups[key] = StreamQueue(name)
        return queue

    def give(self, queue: StreamQueue, task: Task) -> None:
        """Put a task into a queue."""
        for end in self.ending:
            end()
        queue.tasks.append(task)
        if queue.at_work is None and not queue.looked_at:
            self._look_later(queue, task.issued_ns)

    def mark(self, queue: StreamQueue, issued_ns: int) -> Mark:
        """Return a point after all that was put into a queue so far."""
        mark = Mark(queue)
        self.give(queue, Reach(issued_ns, mark))
        return mark

    def wait(self, queue: StreamQueue, mark: Mark, issued_ns: int, row: Row | None = None) -> None:
        """Let what is put into a queue from now on wait for a mark."""
        if mark.queue is not queue:
            self.give(queue, WaitFor(issued_ns, mark, row))
        elif row is not None:
            row.end_ns = row.start_ns

    def standing(self, queue: StreamQueue) -> Waits | None:
        """Return the communication that a queue stands at, itself or where it waits for another; None for none."""
        seen: list[StreamQueue] = []
        while queue not in seen:
            seen.append(queue)
            task = queue.at_work
            if isinstance(task, Talk):
                return task.waiting
            if isinstance(task, WaitFor):
                queue = task.mark.queue
        return None

    # ---- what the device does

    def done(self, queue: StreamQueue, at_ns: int) -> None:
        """Take the next task of a queue at this time, when the one at work is done."""
        self._scheduler.act(at_ns, partial(self._go_on, queue, at_ns))

    def finish(self, talk: Talk, moves_ns: int, ends_ns: int) -> None:
        """Let communication move its bytes from the first of these times on, and be complete at the second."""
        self._scheduler.act(moves_ns, partial(self._move, moves_ns))
        self._scheduler.act(ends_ns, partial(self._finish, talk, ends_ns))

    def happened(self, mark: Mark, now_ns: int) -> None:
        """Let a mark happen, and what waits for it go on."""
        self._scheduler.fire(mark, now_ns)
        blocked, mark.blocked = mark.blocked, []
        for queue in blocked:
            task = queue.at_work
            assert isinstance(task, WaitFor)
            task.over(now_ns)
            self._go_on(queue, now_ns)

    def share(self, now_ns: int) -> None:
        """Give every kernel at work its part of the device from now on."""
        kernels = self.kernels
        filling = sum(kernel.fills for kernel in kernels) if len(kernels) > 1 else 1
        slow = filling * (1.0 + TAKES) if self.talks else float(filling)
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
        self.talks += 1
        self.share(max(now_ns, self.now_ns))

    def _finish(self, talk: Talk, now_ns: int) -> None:
        now_ns = max(now_ns, self.now_ns)
        self.talks -= 1
        self.share(now_ns)
        queue = talk.mark.queue
        self.happened(talk.mark, now_ns)
        self._go_on(queue, now_ns)

    def _look_later(self, queue: StreamQueue, at_ns: int) -> None:
        queue.looked_at = True
        self._scheduler.act(at_ns, partial(self._look, queue, at_ns))

    def _go_on(self, queue: StreamQueue, now_ns: int) -> None:
        queue.at_work = None
        self._look(queue, now_ns)

    def _look(self, queue: StreamQueue, now_ns: int) -> None:
        """Begin what can begin of a queue."""
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
