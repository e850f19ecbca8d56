"""Notices that no rank can go on: every one waits in communication, and none has used the CPU for a while."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from labkit.launch.local_deadlock import nothing_in_flight
from labkit.launch.recording import RankLog

STALL_SECONDS = 2.0
"""How long every unfinished rank must wait in the same call, its CPU idle, before the run counts as deadlocked."""
UNSURE_FACTOR_HERE, UNSURE_FACTOR = 2, 10
"""So many times longer where what was posted could still serve one of them: here where it is a few bytes, else where it
is many, or comes from another host, which a slow link looks like."""
_FEW_BYTES = 64 << 20
_TRANSPORTS = ("gloo_tcp_loop", "TP_")
"""Threads that move messages, by how their names begin: gloo's spins at one that came and that nobody has a buffer for,
and TensorPipe's, of torch.distributed.rpc, spins always."""

_TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0.01
_IDLE_CPU_SECONDS = 0.05


def cpu_seconds(pid: int) -> float | None:
    """Return the CPU time of a process in all threads but those that move messages, None where it cannot be read."""
    try:
        moving = (task for task in Path(f"/proc/{pid}/task").iterdir() if _name_of(task).startswith(_TRANSPORTS))
        return _used(Path(f"/proc/{pid}")) - sum(map(_used, moving))
    except FileNotFoundError:
        pass
    except (OSError, ValueError, IndexError):
        return None
    import psutil

    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return None
    return float(times.user + times.system)


def _name_of(task: Path) -> str:
    return (task / "comm").read_text().strip()


def _used(folder: Path) -> float:
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_SECONDS


@dataclass(frozen=True)
class _Sighting:
    since_ns: tuple[int, ...]
    cpu: float
    at: float


class Watchdog:
    """Compares what ranks do now with what they did before."""

    def __init__(self, stall: float | None, between_hosts: bool = False) -> None:
        """Start with nothing seen.

        Args:
            stall: Seconds without progress that count as a deadlock, or None to look for none.
            between_hosts: Whether messages go over a network.
        """
        self._stall = stall
        self._between_hosts = between_hosts
        self._seen: dict[int, _Sighting] = {}

    def deadlocked(self, cpu_used: Mapping[int, float | None], logs: Mapping[int, RankLog], now: float) -> bool:
        """Return whether all these ranks have waited for longer than ``stall`` without progress or hope of it.

        Args:
            cpu_used: CPU seconds of every rank whose function has not returned, None where that is not known.
            logs: What all ranks recorded until now.
            now: Monotonic time in seconds.
        """
        if self._stall is None or not cpu_used:
            return False
        idle = math.inf
        for rank, cpu in cpu_used.items():
            log = logs.get(rank)
            waits = tuple(wait.since_ns for wait in log.waits) if log is not None else ()
            if not waits or cpu is None:
                self._seen.pop(rank, None)
                idle = 0.0
                continue
            seen = self._seen.get(rank)
            # A thread that waits for its GPU turns in a circle: only one that waits by itself shows by its CPU time.
            circles = log is not None and any(wait.on_device for wait in log.waits)
            busy = seen is not None and cpu - seen.cpu > _IDLE_CPU_SECONDS and not circles
            if seen is None or seen.since_ns != waits or busy:
                self._seen[rank] = seen = _Sighting(waits, cpu, now)
            idle = min(idle, now - seen.at)
        if idle <= self._stall:
            return False
        many = sum(wait.bytes for rank in cpu_used for wait in logs[rank].waits) > _FEW_BYTES
        if idle > self._stall * (UNSURE_FACTOR if many or self._between_hosts else UNSURE_FACTOR_HERE):
            return True
        return nothing_in_flight({rank: logs[rank] for rank in cpu_used}, logs)
