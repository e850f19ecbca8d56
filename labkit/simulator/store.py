"""The key-value store that ranks meet at, with waiting in virtual time."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from labkit.deadlock import NOBODY_SETS, store_call
from labkit.simulator.clock import Event, Waiting
from labkit.simulator.state import the_rank
from labkit.simulator.virtual_work import POLL_NS

_NO_TIMEOUT = timedelta(0)


_Store: Any = vars(dist)["Store"]


class VirtualStore(_Store):  # type: ignore[misc]
    """What torch.distributed's TCPStore is among processes."""

    def __init__(self, name: str = "") -> None:
        """Begin with no values.

        Args:
            name: "tcp://HOST:PORT" or "file://PATH" where a program made it there.
        """
        super().__init__()
        self._name = name
        self._values: dict[str, bytes] = {}
        self._events: dict[str, Event] = {}

    @property
    def host(self) -> str:
        """The host a program named."""
        return self._name.removeprefix("tcp://").rpartition(":")[0]

    @property
    def port(self) -> int:
        """The port a program named."""
        return int(self._name.rpartition(":")[2])

    @property
    def path(self) -> str:
        """The file a program named."""
        return self._name.removeprefix("file://")

    def set(self, key: str, value: str | bytes) -> None:
        """Store a value and let go on who waits for it."""
        the_rank().turn()
        self._put(key, value.encode() if isinstance(value, str) else bytes(value))

    def get(self, key: str) -> bytes:
        """Return a value, once it is there."""
        self._await([key], "store.get", _NO_TIMEOUT)
        return self._values[key]

    def add(self, key: str, amount: int) -> int:
        """Return the sum of a counter and amount, which the counter then is."""
        rank = the_rank()
        rank.turn()
        fold = rank.simulation.fold
        total = int(self._values.get(key, b"0")) + amount * (1 if fold is None else fold.weight(rank.rank))
        self._put(key, str(total).encode())
        return total

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Store desired if the value is expected, or if there is none and nothing is expected; return what is there."""
        the_rank().turn()
        old = expected.encode() if isinstance(expected, str) else bytes(expected)
        new = desired.encode() if isinstance(desired, str) else bytes(desired)
        if self._values.get(key, b"") == old:
            self._put(key, new)
        return self._values.get(key, old)

    def check(self, keys: list[str]) -> bool:
        """Return whether all keys have values by now."""
        rank = the_rank()
        rank.turn()
        found = all(key in self._values for key in keys)
        if not found:  # so that a loop that asks makes time pass
            rank.spend(POLL_NS)
        return found

    def wait(self, keys: list[str], timeout: timedelta = _NO_TIMEOUT) -> None:
        """Return once all keys have values.

        Raises:
            DistStoreError: If a time limit is given and a key has no value by then.
        """
        self._await(keys, "store.wait", timeout)

    def _await(self, keys: list[str], operation: str, timeout: timedelta) -> None:
        rank = the_rank()
        rank.turn()
        source, _ = rank.simulation.sources.find(sys._getframe(1))
        for key in keys:
            if key not in self._values:
                others = [one.rank for one in rank.simulation.ranks if one.rank != rank.rank]
                text = store_call(operation, [key.rpartition("//")[2] or key]) + NOBODY_SETS
                waiting = Waiting(operation, lambda others=others: others, lambda text=text: text, source)  # type: ignore[misc]
                event = self._events.setdefault(key, Event())
                if not timeout:
                    rank.wait(event, waiting)
                    continue
                until_ns = rank.now_ns + round(timeout.total_seconds() * 1e9)
                if not rank.simulation.scheduler.wait_until(rank.clock.number, event, waiting, until_ns):
                    raise dist.DistStoreError(f"wait timeout after {timeout.total_seconds() * 1e3:.0f}ms, keys: {key}")

    def delete_key(self, key: str) -> bool:
        """Remove a key; return whether it was there."""
        the_rank().turn()
        return self._values.pop(key, None) is not None

    def num_keys(self) -> int:
        """Return the number of keys."""
        return len(self._values)

    def append(self, key: str, value: str | bytes) -> None:
        """Put a value behind what is there."""
        the_rank().turn()
        self._put(key, self._values.get(key, b"") + (value.encode() if isinstance(value, str) else bytes(value)))

    def multi_get(self, keys: list[str]) -> list[bytes]:
        """Return the values of all keys, once they are there."""
        self.wait(keys)
        return [self._values[key] for key in keys]

    def multi_set(self, keys: list[str], values: list[str | bytes]) -> None:
        """Store several values."""
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def has_extended_api(self) -> bool:
        """Return True: append and the calls for several keys are there."""
        return True

    def set_timeout(self, timeout: timedelta) -> None:
        """Do nothing: a wait without a limit of its own that cannot end is reported as a deadlock."""

    def _put(self, key: str, value: bytes) -> None:
        self._values[key] = value
        event = self._events.pop(key, None)
        if event is not None:
            rank = the_rank()
            rank.simulation.scheduler.fire(event, rank.now_ns)
