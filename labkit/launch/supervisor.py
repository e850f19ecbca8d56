"""Watches the ranks of one run from start to end."""

from __future__ import annotations

import os
import selectors
import socket
import time
from dataclasses import dataclass, field
from typing import Any

from labkit.errors import RankFailed, RunTimeout
from labkit.launch.by_value import loads_in_notebook
from labkit.launch.channel import Inbox
from labkit.launch.processes import RankProcess, RankProcesses


@dataclass
class RankState:
    process: RankProcess
    inbox: Inbox = field(default_factory=Inbox)
    output: bytearray = field(default_factory=bytearray)
    shown: int = 0
    result: bytes | None = None
    error: dict[str, Any] | None = None


class Supervisor:
    """Runs one job to its end."""

    def __init__(self, processes: RankProcesses, ranks: list[RankProcess], timeout: float | None, echo: bool) -> None:
        self._processes = processes
        self._states = [RankState(p) for p in ranks]
        self._selector = selectors.DefaultSelector()
        self._timeout = timeout
        self._echo = echo
        processes.register(self._selector)
        for state in self._states:
            os.set_blocking(state.process.output, False)
            self._selector.register(state.process.output, selectors.EVENT_READ, ("output", state))
            self._selector.register(state.process.channel, selectors.EVENT_READ, ("channel", state))

    def output(self) -> list[str]:
        return [s.output.decode(errors="replace") for s in self._states]

    def supervise(self) -> list[object]:
        started = time.monotonic()
        while any(s.result is None for s in self._states):
            self._pump(0.2)
            for s in self._states:
                if s.error or (s.process.status is not None and s.result is None):
                    self._pump(0.1)
                    self._fail(s)
            if self._timeout is not None and time.monotonic() - started > self._timeout:
                raise RunTimeout(f"the time limit of {self._timeout:g} s passed", output=tuple(self.output()))
        for s in self._states:
            s.process.channel.shutdown(socket.SHUT_WR)
        while any(s.process.status is None for s in self._states):
            self._pump(0.2)
        self._pump(0)
        return [loads_in_notebook(s.result) for s in self._states if s.result is not None]

    def _fail(self, state: RankState) -> None:
        rank = state.process.rank
        what = state.error["traceback"] if state.error else f"exit status {state.process.status}"
        raise RankFailed(f"rank {rank} failed:\n{what}", rank=rank, reports={rank: what}, output=tuple(self.output()))

    def _pump(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            if key.data == "processes":
                self._processes.read_events()
                continue
            kind, state = key.data
            try:
                data = os.read(key.fd, 1 << 20)
            except BlockingIOError:
                continue
            if not data:
                self._selector.unregister(key.fileobj)
            elif kind == "output":
                state.output += data
                if self._echo:
                    *lines, _ = bytes(state.output[state.shown :]).split(b"\n")
                    for line in lines:
                        print(f"[rank {state.process.rank}] {line.decode(errors='replace')}", flush=True)
                        state.shown += len(line) + 1
            else:
                for message, value in state.inbox.feed(data):
                    if message == "result":
                        state.result = value
                    elif message == "error":
                        state.error = value
