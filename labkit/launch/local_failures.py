"""Failures injected into real ranks: a kill, a hang, a slow rank; at a time, or as a step begins."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from labkit.errors import ConfigError
from labkit.failures.records import Failure, Hang, Kill, Slow, check


def check_local(failures: tuple[Failure, ...], world_size: int) -> None:
    """Check that these can be injected into processes of this host.

    Raises:
        ConfigError: If one needs a virtual world, or names a rank that is not there.
    """
    check(failures, world_size, 1)
    for one in failures:
        can_be = isinstance(one, Slow) or (isinstance(one, Kill | Hang) and hasattr(signal, "SIGSTOP"))
        if not can_be or (one.step is None and one.at_s is None) or one.attempt:
            raise ConfigError(
                f"{one!r} needs virtual time; on labkit.local a process can be killed or stand still, not on Windows, "
                "or be slow, at at_s= or step=. Use labkit.virtual for the others."
            )


@dataclass(frozen=True)
class WithFailures:
    """A function, with failures injected into its ranks.

    Attributes:
        function: The function.
        failures: What breaks.
    """

    function: Callable[..., object]
    failures: tuple[Failure, ...]

    def __call__(self, *args: object) -> object:
        """Return what the function returns on this rank, if it gets there."""
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        mine = [one for one in self.failures if one.of == int(os.environ["RANK"])]
        rank = _Rank([one for one in mine if one.step is not None])
        for one in mine:
            if one.at_s is not None:
                timer = threading.Timer(one.at_s, partial(rank.inject, one))
                timer.daemon = True
                timer.start()
        handles = register_optimizer_step_pre_hook(rank.begins), register_optimizer_step_post_hook(rank.ended)
        try:
            return self.function(*args)
        finally:
            for handle in handles:
                handle.remove()


class _Rank:
    """The failures injected into this process so far.

    Attributes:
        factor: How many times slower it is made.
    """

    def __init__(self, at_steps: list[Failure]) -> None:
        self._at_steps, self._steps, self._last_s = at_steps, 0, time.perf_counter()
        self.factor = 1.0

    def inject(self, one: Failure) -> None:
        """Let one failure happen now."""
        if isinstance(one, Kill):
            os.kill(os.getpid(), signal.SIGKILL)
        elif isinstance(one, Hang):
            os.kill(os.getpid(), signal.SIGSTOP)
        elif isinstance(one, Slow):
            self.factor *= one.factor

    def begins(self, *_: Any) -> None:
        """Note that a step begins."""
        self._steps += 1
        for one in self._at_steps:
            if one.step == self._steps:
                self.inject(one)

    def ended(self, *_: Any) -> None:
        """Make the step as much longer as the rank is slower: by sleeping, so that others keep the processor."""
        now_s = time.perf_counter()
        time.sleep((self.factor - 1.0) * (now_s - self._last_s))
        self._last_s = time.perf_counter()
