"""Ranks of other hosts, as the supervisor sees them."""

from __future__ import annotations

import os
import selectors
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from labkit.errors import EnvironmentProblem, HostLost
from labkit.launch.cgroup import OomCount
from labkit.launch.cluster.hosts import Host
from labkit.launch.cluster.link import LEASE_SECONDS, LOST
from labkit.launch.cluster.log_copies import LogCopy
from labkit.launch.processes import Arrival, RankProcess, RankProcesses
from labkit.launch.recording import RankLog

_END_SECONDS = 10.0


@dataclass
class RemoteRank(RankProcess):
    """A rank of another host.

    Attributes:
        on: The host.
        local_rank: Which of the host's ranks it is.
        log: Copy of what it recorded.
        cpu: CPU seconds it had used when its host last looked.
        kills: How many processes its host had ended for memory then.
    """

    on: Host = field(kw_only=True)
    local_rank: int = field(kw_only=True)
    log: LogCopy = field(kw_only=True)
    cpu: float | None = None
    kills: OomCount | None = None

    def tell(self, word: bytes) -> None:
        """Send the rank one word, through its host's agent."""
        self.on.link.send("tell", (self.local_rank, word))

    def read_log(self) -> RankLog | None:
        """Return what it had recorded when its host last looked."""
        return self.log.read()

    def cpu_seconds(self) -> float | None:
        """Return the CPU time it had used then."""
        return self.cpu

    def oom_kills(self) -> OomCount | None:
        """Return how often its host ended processes for memory, None before the host has said so."""
        return self.kills

    def on_one_clock(self, log: RankLog) -> RankLog:
        """Return its log with times of the first host's clock."""
        return self.on.clock.read(log, self.host)

    def here_seconds(self, time: float) -> float:
        """Return a time of its host's clock on that of the first host."""
        return time + self.on.clock.shift_ns(round(time * 1e9)) / 1e9

    def close(self) -> None:
        """Let go of the log."""
        os.close(self.log.fd)


class RemoteRanks(RankProcesses):
    """Ranks that agents started, a host's own consecutive."""

    settle_echo = LEASE_SECONDS + 1.0

    def __init__(self, hosts: Sequence[Host], orders: Sequence[Any]) -> None:
        """Take the hosts, and what each is to be asked for."""
        self._hosts, self._orders = hosts, orders
        self._ranks: list[RemoteRank] = []
        self._arrivals: deque[Arrival] = deque()
        self._ending: set[str] | None = None  # hosts that still have to say that their ranks are gone
        self._lost: dict[str, str] = {}

    def start(self, payload: bytes, world_size: int, *, record: bool) -> list[RankProcess]:
        """Let every host start its ranks; each host has an order of its own in place of a payload."""
        for host, order in zip(self._hosts, self._orders, strict=True):
            host.link.send("start", order)
            for local_rank in range(len(order.devices)):
                rank = order.first_rank + local_rank
                self._ranks.append(
                    RemoteRank(
                        rank, None, None, None, host=host.name, on=host, local_rank=local_rank, log=LogCopy(rank)
                    )
                )
        return list(self._ranks)

    def register(self, selector: selectors.BaseSelector) -> None:
        """Register every link."""
        for host in self._hosts:
            selector.register(host.link.arrived, selectors.EVENT_READ, "processes")

    def read_events(self) -> None:
        """Do nothing: poll() takes what has arrived."""

    def poll(self) -> Sequence[Arrival]:
        """Return what ranks sent since; note exits, logs and times.

        Raises:
            HostLost: If a host no longer answers.
            EnvironmentProblem: If a host could not start its ranks.
        """
        for host in self._hosts:
            self._take(host)
        arrived = list(self._arrivals)
        self._arrivals.clear()
        if self._lost and self._ending is None and not arrived:  # what its ranks said last comes first
            raise HostLost(self._lost_words())
        return arrived

    def ask_for_stack(self, process: RankProcess) -> None:
        """Ask its agent for a rank's Python stack."""
        assert isinstance(process, RemoteRank)
        process.on.link.send("stack", (process.local_rank, b""))

    def end(self) -> None:
        """Let every host end its ranks, and wait for what it still has to say; a lost one ends them by itself."""
        self._ending = {host.name for host in self._hosts if host.name not in self._lost}
        for host in self._hosts:
            host.link.send("end")
        until = time.monotonic() + _END_SECONDS
        with selectors.DefaultSelector() as selector:
            for host in self._hosts:
                selector.register(host.link.arrived, selectors.EVENT_READ)
            while time.monotonic() < until and self._ending:
                selector.select(0.2)
                for host in self._hosts:
                    self._take(host)
        for host in self._hosts:
            if host.name in self._ending:  # what it still says must not reach the next run, and losing us ends it
                host.link.close()

    def forget(self) -> None:
        """Do nothing: each host has cleaned up."""

    def _take(self, host: Host) -> None:
        mine = [rank for rank in self._ranks if rank.on is host]
        for kind, value in host.link.take():
            if kind == "from":
                local_rank, end, data = value
                self._arrivals.append((mine[local_rank], end, data))
            elif kind == "exited":
                mine[value[0]].status = value[1]
            elif kind == "state":
                self._note(mine, *value)
            elif kind == "ended":
                host.clock = value
                self._gone(host)
            elif kind in (LOST, "leaving"):
                self._lost.setdefault(host.name, value)
                self._gone(host)
            elif kind == "problem":
                raise EnvironmentProblem(f"Host {host.name} could not start its ranks: {value}")

    def _gone(self, host: Host) -> None:
        if self._ending is not None:
            self._ending.discard(host.name)

    def _note(self, mine: Sequence[RemoteRank], seen_ns: int, kills: OomCount | None, states: Sequence[Any]) -> None:
        for local_rank, pid, cpu, alive, pages in states:
            rank = mine[local_rank]
            rank.pid, rank.cpu, rank.kills = pid, cpu, kills
            rank.log.put(pages, seen_ns, alive)

    def _lost_words(self) -> str:
        told = []
        for host, why in self._lost.items():
            ranks = [rank.rank for rank in self._ranks if rank.host == host]
            which = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]} to {ranks[-1]}"
            told.append(f"host {host} with {which} is lost: {why}.")
        words = " ".join(told)
        return (
            f"{words[0].upper()}{words[1:]} All other ranks have been ended; those of a lost host end when its agent "
            "notices that nobody renews its lease."
        )
