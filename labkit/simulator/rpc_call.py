"""A call of torch.distributed.rpc while it is under way, and what a report says of whoever waits for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.futures import Future

from labkit.simulator.record import Row
from labkit.simulator.rpc_values import Packed

if TYPE_CHECKING:
    from labkit.simulator.rpc_agent import Agent


@dataclass(eq=False)
class Call:
    """One remote call while it is under way.

    Attributes:
        kind: "rpc_sync", "rpc_async", "remote" or "to_here".
        name: What is called.
        caller: Who calls.
        callee: Who is called.
        request: What goes there.
        row: Its span at the caller.
        future: Holds the reply at the caller.
        key: Where the callee keeps the result, for "remote".
        handler: The number of the clock that handles it, -1 before.
        served: Its span at the callee, once it is handled.
        done: Whether the caller has its answer.
        number: How many the caller made before it, and one.
    """

    kind: str
    name: str
    caller: Agent
    callee: Agent
    request: Packed
    row: Row
    future: Future[Any]
    key: tuple[int, int] | None = None
    handler: int = -1
    served: Row | None = None
    done: bool = False
    number: int = 0

    def text(self) -> str:
        """Return what a report says of a wait for it."""
        where = f"{self.kind} {self.name}() on {self.callee.info.name} (rank {self.callee.rank.rank})"
        if self.callee.line and self in self.callee.line:
            threads = self.callee.num_threads
            return f"{where}, whose {'only thread is' if threads == 1 else f'{threads} threads are all'} busy"
        if any(call is self for call, _ in self.caller.replies):
            name, threads = self.caller.info.name, self.caller.num_threads
            busy = "only thread is" if threads == 1 else f"{threads} threads are all"
            return f"{where}, whose reply {name} cannot take in: its {busy} busy"
        if self.handler >= 0 and self.callee.clock(self.handler).done:
            return f"{where}, whose handler returned a future that nobody has completed"
        return where

    def facts(self) -> dict[str, Any]:
        """Return what a report of a deadlock says of it, as labkit.deadlock.Waiting has it."""
        return {"said": self.text()}

    def peers(self) -> list[int]:
        """Return whose clocks must do something first."""
        if any(call is self for call, _ in self.caller.replies):
            return [call.handler for call in self.caller.at_work]
        if self.handler < 0:
            return [call.handler for call in self.callee.at_work] or [self.callee.rank.rank]
        return [] if self.callee.clock(self.handler).done else [self.handler]
