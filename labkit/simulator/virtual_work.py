"""The handle of an operation in virtual time, and its future."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch.futures import Future

from labkit.simulator.clock import Event, Waiting, Waits
from labkit.simulator.futures import promise_in_backward
from labkit.simulator.record import Row
from labkit.simulator.state import VirtualRank, the_rank
from labkit.timeline.span import Lane
from labkit.torch_port.backward import in_backward
from labkit.torch_port.handles import Handle

POLL_NS = 1_000
"""What looking at an unfinished operation costs, so that a loop that polls makes time pass."""


class VirtualWork(Handle):
    """What isend, irecv and collectives return."""

    def __init__(
        self,
        event: Event,
        waiting: Waits,
        row: Row | None,
        result: list[torch.Tensor],
        finish: Callable[[], None] = lambda: None,
        source: Callable[[], int] = lambda: -1,
        known: Event | None = None,
    ) -> None:
        """Begin to stand for an operation.

        Args:
            event: Fired when it is complete.
            waiting: What a report says of a rank that waits for it.
            row: Its span.
            result: The tensors that will hold the result.
            finish: Writes the result; called once, when the rank learns that it is complete.
            source: Group rank that a message came from.
            known: Fired when its results are known, at no time; None where it has none for this rank.
        """
        super().__init__()
        self._event, self._waiting, self._row = event, waiting, row
        self._tensors, self._finish, self._source, self._known = result, finish, source, known
        self._done = False
        self._futures: list[VirtualFuture] = []
        self._limit: timedelta | None = None
        self._gave_up: Callable[[str], None] = lambda text: None

    def limited(self, limit: timedelta, gave_up: Callable[[str], None]) -> VirtualWork:
        """Return the handle, whose waits end after the time limit of its group; told when one has."""
        self._limit, self._gave_up = limit, gave_up
        return self

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Return True once the operation is complete; results are written now.

        Raises:
            RuntimeError: If a time limit is given and nobody has done what is waited for by then.
        """
        if self._done:
            return True
        rank = the_rank()  # any thread of the rank may wait
        if self._goes_on(rank):
            return True
        own, timeout = timeout, timeout or self._limit
        note = self._wait_row(rank)
        in_time = self._host_waits(rank, timeout)
        if note is not None:
            note.end_ns = rank.now_ns
        if timeout and not in_time:
            took = f"{timeout.total_seconds() * 1e3:.0f} milliseconds"
            text = f"Timed out waiting {took} for {self._waiting.text()}"
            if isinstance(self._waiting, Waiting):
                missing = ", ".join(map(str, self._waiting.peers()[:8]))
                text = f"caught collective operation timeout: {self._waiting.text()} was not done after {took}"
                text += f"; rank {missing} failed to pass it in time" if missing else ""
            if not own:
                self._gave_up(text)
            raise RuntimeError(text)
        self._complete()
        return True

    def _goes_on(self, rank: VirtualRank) -> bool:
        """Return whether the rank has the results and does not wait: a run in which waits are put off."""
        what_if = rank.simulation.what_if
        if what_if is None or self._row is None or self._known is None:
            return False
        if not what_if.puts_off(rank, self._row, lambda: self._waits_now(rank)):
            return False
        if not self._done:
            rank.simulation.scheduler.wait(rank.clock.number, self._known, self._waiting)
            self._complete()
        return True

    def _waits_now(self, rank: VirtualRank) -> None:
        """Let what the rank does from now on wait for the operation."""
        self._host_waits(rank, None)

    def _wait_row(self, rank: VirtualRank) -> Row | None:
        """Return a span for a wait that begins now, None for a call that waits itself."""
        row = self._row
        if row is None or row.blocking:
            return None
        return rank.record.add(
            Row(
                Lane.HOST, rank.now_ns, -1, "wait", "wait", row.bytes, row.peer, -1, row.tag, row.group,
                row.group_size, 0, row.source, of=row,
            )
        )  # fmt: skip

    def _host_waits(self, rank: VirtualRank, timeout: timedelta | None) -> bool:
        """Return whether the operation is complete in time."""
        clock, scheduler = rank.clock, rank.simulation.scheduler
        if timeout:  # torch's own C++ passes 0 for none
            until_ns = clock.now_ns + round(timeout.total_seconds() * 1e9)
            return scheduler.wait_until(clock.number, self._event, self._waiting, until_ns)
        scheduler.wait(clock.number, self._event, self._waiting)
        return True

    def _complete(self) -> None:
        self._done = True
        if self._row is not None:
            self._row.waited = True
        self._finish()
        futures, self._futures = self._futures, []
        for future in futures:
            future.complete(self._tensors)

    def is_completed(self) -> bool:
        """Return whether the operation is complete by now."""
        if not self._done:
            if not self._has_happened():
                return False
            self._complete()
        return True

    def _has_happened(self) -> bool:
        """Return whether the operation is complete by now; looking takes time where it is not."""
        rank = the_rank()
        rank.turn()
        if self._event.ready_ns is None or self._event.ready_ns > rank.now_ns:
            rank.spend(POLL_NS)
            rank.turn()
            return False
        return True

    def is_success(self) -> bool:
        """Return whether it is complete: what goes wrong ends the rank."""
        return self.is_completed()

    def exception(self) -> None:
        """Return None: what goes wrong ends the rank."""

    def synchronize(self) -> None:
        """Wait for the operation."""
        self.wait()

    def block_current_stream(self) -> None:
        """Wait for the operation: the compute stream and the program are one here."""
        self.wait()

    def source_rank(self) -> int:
        """Return the group rank a message came from."""
        return self._source()

    def result(self) -> list[torch.Tensor]:
        """Return the tensors that hold the result."""
        return self._tensors

    def get_future(self) -> Future[Any]:
        """Return a future of the result.

        During a backward pass it is completed at the end of that pass, before what is queued later, which is what
        DistributedDataParallel's reducer needs: it waits for the future in C++. What C++ asks for at another time, and
        what is asked for when the pass has come to its end already, is waited for now: nobody could go on while C++
        waits. Otherwise whoever waits for the future waits in virtual time.
        """
        during = in_backward()
        if not self._done and (the_rank().process.backward_end.has_come() if during else _called_by_cpp()):
            self.wait()
        if self._done:
            done: Future[Any] = Future()
            done.set_result(self._tensors)
            return done
        if not during:
            self._futures.append(VirtualFuture(self))
            return self._futures[-1]
        future: Future[Any] = Future()

        def complete() -> None:
            self.wait()
            if not future.done():
                future.set_result(self._tensors)

        promise_in_backward(the_rank(), future, complete)
        return future

    get_future_result = get_future


def _called_by_cpp() -> bool:
    """Return whether C++ called get_future(), not the Python code that stands above it."""
    return not any(name.startswith("get_future") for name in sys._getframe(2).f_code.co_names)


class VirtualFuture(Future[Any]):
    """A future that waits in virtual time."""

    def __init__(self, before: VirtualWork | VirtualFuture, inner: Future[Any] | None = None) -> None:
        """Begin to stand for a result.

        Args:
            before: What must be waited for first.
            inner: The future that holds the value, None for the work's own result.
        """
        super().__init__()
        self._before = before
        self._inner = inner

    def complete(self, result: list[torch.Tensor]) -> None:
        """Take the work's result, and call back who asked for it: whoever waited, for the handle or for this."""
        if not super().done():
            super().set_result(result)

    def wait(self) -> Any:
        """Return the value once it is there."""
        if isinstance(self._before, VirtualWork):
            self._before.wait()
            return super().wait()
        self._before.wait()
        assert self._inner is not None
        return self._inner.wait()

    def value(self) -> Any:
        """Return the value of a future that is complete."""
        return super().value() if self._inner is None else self._inner.value()

    def done(self) -> bool:
        """Return whether the value is there."""
        if isinstance(self._before, VirtualWork):
            self._before.is_completed()
            return bool(super().done())
        self._before.done()
        assert self._inner is not None
        return bool(self._inner.done())

    def then(self, callback: Callable[[Future[Any]], Any]) -> Future[Any]:
        """Return a future of what callback makes of this one; it is called when somebody has waited."""
        inner = super().then(callback) if self._inner is None else self._inner.then(callback)
        return VirtualFuture(self, inner)

    def add_done_callback(self, callback: Callable[[Future[Any]], None]) -> None:
        """Call back when somebody has waited, for the handle or for a future of it."""
        if self._inner is None:
            super().add_done_callback(callback)
        else:
            self._inner.add_done_callback(callback)
