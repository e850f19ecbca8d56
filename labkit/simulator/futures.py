"""torch.futures.Future in virtual time: waiting for one that a rank made, and calling back when it is complete.

torch's own futures wait in C++, where nobody could go on meanwhile. So while a run goes on, the methods of torch's
class ask who calls: a rank waits in virtual time, and callbacks run in the thread that completes the future, at its
time; other threads, and futures of torch's own making, are served as ever. The value is kept in the C++ future too,
which DistributedDataParallel's hooks read. A hook that waits for a future of C++ during a backward pass has what its
rank promised for the pass's end done first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.futures import Future

from labkit.simulator.clock import Event, Waiting
from labkit.simulator.state import VirtualRank, current_rank
from labkit.simulator.tracebacks import describe, lines_of
from labkit.torch_port.backward import before_backward_returns
from labkit.torch_port.futures import AnyFuture, unwrap_with

POLL_NS = 1_000
"""What asking whether a future is complete costs."""

_ATTRIBUTE = "_labkit_state"
_METHODS = ("wait", "done", "then", "add_done_callback", "set_result")
_real: dict[str, Any] = {name: vars(Future)[name] for name in _METHODS}
_real_wait_in_cpp = AnyFuture.wait
_real_collect_all, _real_wait_all = torch.futures.collect_all, torch.futures.wait_all


@dataclass(eq=False)
class State:
    """What is known of a future in virtual time.

    Attributes:
        event: Fired when it is complete.
        callbacks: Called then.
        value: What it was given.
        failed: Whether that is an error of torch's own making: a remote one, or of a callback.
        text: Returns what a report calls a wait for it.
        peers: Returns whose clocks must do something first.
        keep: Completes it, waiting in virtual time; None where others do.
    """

    event: Event = field(default_factory=Event)
    callbacks: list[Callable[[Future[Any]], object]] = field(default_factory=list)
    value: Any = None
    failed: bool = False
    text: Callable[[], str] = lambda: "Future.wait"
    peers: Callable[[], list[int]] = list
    keep: Callable[[], None] | None = None


def state_of(future: Future[Any]) -> State:
    """Return what is known of a future, which may be new here."""
    state: State | None = vars(future).get(_ATTRIBUTE)
    if state is None:
        state = vars(future)[_ATTRIBUTE] = State()
        if _real["done"](future):  # before a rank saw it
            state.event.ready_ns = 0
    return state


def promise(future: Future[Any], keep: Callable[[], None]) -> None:
    """Say how a future is completed by whoever waits for it before it is."""
    state_of(future).keep = keep


def _keep(state: State) -> None:
    """Complete a future that its rank has promised to complete later."""
    if state.keep is not None and state.event.ready_ns is None:
        state.keep()


def promise_in_backward(rank: VirtualRank, future: Future[Any], keep: Callable[[], None]) -> None:
    """Say how a future is completed, at the end of the backward pass or by who waits for anything before."""
    promises = rank.process.promises

    def once() -> None:
        if once in promises:
            del promises[once]
            keep()

    promises[once] = None
    promise(future, once)
    before_backward_returns(once)


def _wait_in_cpp(self: Any) -> Any:
    rank = current_rank()
    if rank is not None and rank.process.promises and not self.done():
        for keep in list(rank.process.promises):
            keep()
    return _real_wait_in_cpp(self)


def complete(rank: VirtualRank, future: Future[Any], value: object, at_ns: int) -> None:
    """Give the future its value, as of this time, without calling back; callable from an action."""
    state = state_of(future)  # before it is complete: what was complete when first seen needs no event
    _real["set_result"](future, value)
    state.value = value
    rank.simulation.scheduler.fire(state.event, at_ns)


def fail(rank: VirtualRank, future: Future[Any], error: Exception, at_ns: int) -> None:
    """Let the future raise, as of this time, without calling back; callable from an action."""
    unwrap_with(future, _raise)
    state_of(future).failed = True
    complete(rank, future, error, at_ns)


def call_back(future: Future[Any]) -> None:
    """Call what waits for the future to be complete; it is."""
    state = state_of(future)
    callbacks, state.callbacks = state.callbacks, []
    for callback in callbacks:
        _call(callback, future)


def _raise(error: Exception) -> None:
    raise error


def _call(callback: Callable[[Future[Any]], object], future: Future[Any]) -> None:
    try:
        callback(future)
    except Exception as error:  # as torch does: nobody is there to catch it
        print(f"Got the following error when running the callback: {describe(error)[1]}", file=sys.stderr)


def _mine(future: Future[Any]) -> VirtualRank | None:
    """Return the rank that calls, None where torch itself is to serve it."""
    return current_rank() if type(future) is Future else None


def _wait(self: Future[Any]) -> Any:
    rank = _mine(self)
    if rank is not None:
        state = state_of(self)
        _keep(state)
        if state.event.ready_ns is None:
            source, _ = rank.simulation.sources.find(sys._getframe(1))
            rank.wait(state.event, Waiting("Future.wait", state.peers, state.text, source))
        else:
            rank.clock.now_ns = max(rank.now_ns, state.event.ready_ns)
    return _real["wait"](self)


def _done(self: Future[Any]) -> bool:
    rank = _mine(self)
    if rank is None:
        return bool(_real["done"](self))
    rank.turn()
    ready_ns = state_of(self).event.ready_ns
    if ready_ns is not None and ready_ns <= rank.now_ns:
        return True
    rank.spend(POLL_NS)
    rank.turn()
    return False


def _set_result(self: Future[Any], result: Any) -> None:
    rank = _mine(self)
    if rank is None:
        _real["set_result"](self, result)
        return
    if rank.process.threaded:
        rank.turn()
    complete(rank, self, result, rank.now_ns)
    call_back(self)


def _add_done_callback(self: Future[Any], callback: Callable[[Future[Any]], None]) -> None:
    rank = _mine(self)
    if rank is None:
        _real["add_done_callback"](self, callback)
        return
    if rank.process.threaded:
        rank.turn()
    state = state_of(self)
    if state.event.ready_ns is None:
        state.callbacks.append(callback)
    else:
        rank.clock.now_ns = max(rank.now_ns, state.event.ready_ns)
        _call(callback, self)


def _then(self: Future[Any], callback: Callable[[Future[Any]], Any]) -> Future[Any]:
    rank = _mine(self)
    if rank is None:
        return _real["then"](self, callback)  # type: ignore[no-any-return]
    following: Future[Any] = Future()
    state, before = state_of(following), state_of(self)
    state.text, state.peers = (lambda: f"{before.text()} and what follows it"), (lambda: before.peers())
    if before.keep is not None:
        state.keep = lambda: _keep(before)

    def follow(future: Future[Any]) -> None:
        try:
            value = callback(future)
        except Exception as error:
            where = "\n".join(f"  {line}" for line in lines_of(error))
            text = f"{type(error).__name__}: {error}\n\nAt:\n{where}\n"
            state_of(following).failed = True
            following.set_exception(RuntimeError(f"Got the following error when running the callback: {text}"))
        else:
            following.set_result(value)

    _add_done_callback(self, follow)
    return following


def _collect_all(futures: list[Future[Any]]) -> Future[list[Future[Any]]]:
    if current_rank() is None or not all(isinstance(future, Future) for future in futures):
        return _real_collect_all(futures)
    futures = [future if type(future) is Future else _standing_for(future) for future in futures]
    collected: Future[list[Future[Any]]] = Future()
    left = [len(futures)]
    state = state_of(collected)
    state.text = lambda: f"Future.wait for {left[0]} of {len(futures)} futures"
    state.peers = lambda: [peer for one in map(state_of, futures) if one.event.ready_ns is None for peer in one.peers()]

    def keep() -> None:
        for one in futures:
            _keep(state_of(one))

    state.keep = keep

    def count(_: Future[Any]) -> None:
        left[0] -= 1
        if not left[0]:
            collected.set_result(futures)

    for future in futures:
        future.add_done_callback(count)
    if not futures:
        collected.set_result(futures)
    return collected


def _standing_for(future: Future[Any]) -> Future[Any]:
    """Return a future of torch's own class that is completed by waiting for this one."""
    standing: Future[Any] = Future()
    promise(standing, lambda: standing.set_result(future.wait()))
    return standing


def _wait_all(futures: list[Future[Any]]) -> list[Any]:
    if current_rank() is None:
        return _real_wait_all(futures)
    return [future.wait() for future in _collect_all(futures).wait()]


@contextmanager
def installed() -> Iterator[None]:
    """Let ranks wait for futures in virtual time; leave torch as it was."""
    futures: Any = torch.futures
    ours = {"wait": _wait, "done": _done, "then": _then, "set_result": _set_result}
    ours["add_done_callback"] = _add_done_callback
    for name, value in ours.items():
        setattr(Future, name, value)
    futures.collect_all, futures.wait_all = _collect_all, _wait_all
    AnyFuture.wait = _wait_in_cpp
    try:
        yield
    finally:
        for name in ours:
            setattr(Future, name, _real[name])
        futures.collect_all, futures.wait_all = _real_collect_all, _real_wait_all
        AnyFuture.wait = _real_wait_in_cpp
