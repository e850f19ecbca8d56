"""The policy of recovery alone, replayed without ranks: months of thousands of nodes in less than a second.

Its times come from a run of labkit.virtual, or are given. A run trains, saves every so many steps, is interrupted, is
started again from the last save that was complete, and goes on.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from labkit.errors import ConfigError


@dataclass(frozen=True)
class Policy:
    """How a run saves and recovers; all times in seconds.

    Attributes:
        step_s: What a step takes.
        save_every: How many steps lie between two saves.
        save_s: How long a save stops the training.
        flush_s: How much longer it takes until it counts, while the training goes on; 0 for a save that is not
            asynchronous.
        detect_s: From an interruption until it is noticed.
        restart_s: From there until all ranks run again.
        reload_s: What loading the last save takes.
        spares: Nodes that stand by; where none is left, the run waits for a repair.
        repair_s: What the repair of a node takes.
    """

    step_s: float
    save_every: int
    save_s: float
    detect_s: float
    restart_s: float
    reload_s: float
    flush_s: float = 0.0
    spares: int = 0
    repair_s: float = 0.0

    def __post_init__(self) -> None:
        """Check that it can be.

        Raises:
            ConfigError: If a number cannot be.
        """
        times = (self.save_s, self.detect_s, self.restart_s, self.reload_s, self.flush_s, self.repair_s)
        if not (self.step_s > 0 and self.save_every >= 1 and self.spares >= 0 and all(time >= 0 for time in times)):
            raise ConfigError(f"{self!r}: step_s must be above 0, save_every at least 1, and the others 0 or more.")


@dataclass(frozen=True)
class Replayed:
    """What a policy comes to.

    Attributes:
        goodput: Share of the time that went into steps which counted.
        total_s: The time.
        num_steps: Steps that counted.
        num_interruptions: How often it was interrupted.
        saving_s: Time in which saves stopped the training.
        again_s: Time of steps that were lost and done again.
        down_s: Time in which nothing ran: detection, restart, reload, waiting for a repair.
    """

    goodput: float
    total_s: float
    num_steps: int
    num_interruptions: int
    saving_s: float
    again_s: float
    down_s: float


def interruptions(mean_s: float, seed: int = 0) -> Iterator[float]:
    """Yield times of interruptions, exponential with this mean, for ever."""
    draw, at_s = random.Random(f"interruptions {seed}"), 0.0
    while True:
        at_s += draw.expovariate(1 / mean_s)
        yield at_s


def replay_policy(
    policy: Policy, at_s: Iterator[float], *, days: float | None = None, num_steps: int | None = None
) -> Replayed:
    """Return what a policy comes to under these interruptions, until a time or a number of steps is reached.

    An interruption while nothing runs counts when the ranks run again, as one at a time does in labkit.virtual.

    Args:
        policy: The policy.
        at_s: Times of interruptions in order; it may end.
        days: Length of the run.
        num_steps: Steps of the run; exactly one of the two is given.

    Raises:
        ConfigError: If not exactly one of days and num_steps is given.
    """
    if (days is None) == (num_steps is None):
        raise ConfigError(f"days={days}, num_steps={num_steps}: give one of the two, the end of the run.")
    until_s = math.inf if days is None else days * 86_400
    most = math.inf if num_steps is None else num_steps
    up_s, load_s, saved, count = 0.0, 0.0, 0, 0  # up: all ranks run, and load the last save first
    saving_s = again_s = down_s = 0.0
    repairs: list[float] = []
    while True:
        begin_s, steps_left = up_s + load_s, most - saved
        next_s = max(next(at_s, math.inf), up_s)
        stop_s = min(begin_s + _takes(policy, steps_left), until_s)
        if stop_s <= next_s:
            steps, stopped_s, _ = _reached(policy, max(0.0, stop_s - begin_s), steps_left)
            down_s += min(load_s, stop_s - up_s)
            done = saved + steps
            return Replayed(
                done * policy.step_s / stop_s, stop_s, done, count, saving_s + stopped_s, again_s, down_s
            )  # fmt: skip
        count += 1
        trained_s = max(0.0, next_s - begin_s)
        steps, stopped_s, kept = _reached(policy, trained_s, steps_left)
        saved, saving_s = saved + kept, saving_s + stopped_s
        again_s += trained_s - stopped_s - kept * policy.step_s
        down_s += min(load_s, next_s - up_s)
        up_s, load_s = next_s + policy.detect_s + policy.restart_s, policy.reload_s
        if policy.repair_s:
            while repairs and repairs[0] <= next_s:
                heapq.heappop(repairs)
            heapq.heappush(repairs, next_s + policy.repair_s)
            if len(repairs) > policy.spares:
                up_s = max(up_s, heapq.heappop(repairs) + policy.restart_s)
        if up_s >= until_s:
            return Replayed(
                saved * policy.step_s / until_s, until_s, saved, count, saving_s, again_s, down_s + until_s - next_s
            )  # fmt: skip
        down_s += up_s - next_s


def young_interval_s(save_s: float, mean_s: float) -> float:
    """Return the time between saves that loses least, to first order: Young 1974, the square root of 2 C M."""
    return math.sqrt(2 * save_s * mean_s)


def _takes(policy: Policy, steps: float) -> float:
    """Return what so many steps take with their saves."""
    if steps == math.inf:
        return math.inf
    return steps * policy.step_s + (steps // policy.save_every) * policy.save_s


def _reached(policy: Policy, after_s: float, most: float) -> tuple[int, float, int]:
    """Return after a time without interruption: steps done, time stopped for saves, steps that a save holds."""
    cycle_s = policy.save_every * policy.step_s + policy.save_s
    cycles = math.floor(after_s / cycle_s + 1e-9)
    rest_s = max(0.0, after_s - cycles * cycle_s)
    steps = cycles * policy.save_every + min(policy.save_every, math.floor(rest_s / policy.step_s + 1e-9))
    stopped_s = cycles * policy.save_s + max(0.0, rest_s - policy.save_every * policy.step_s)
    kept = max(0, math.floor((after_s - policy.flush_s) / cycle_s + 1e-9)) * policy.save_every
    return int(min(steps, most)), stopped_s, int(min(kept, most))
