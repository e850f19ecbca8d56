"""The policy of recovery alone, replayed without ranks: months of thousands of nodes in less than a second.

Its times come from a run of labkit.virtual, or are given. A run trains, saves every so many steps, is interrupted, is
started again from the last save that was complete, and goes on.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Iterator
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
        spares: Nodes that stand by; where none is left, the run waits for a repair, or goes on with fewer nodes.
        repair_s: What the repair of a node takes.
        node_share: Share of the interruptions that take a node; after the others the same nodes go on.
        nodes: On how many nodes it trains, where it goes on with fewer: a step then takes so much longer, and a
            repaired node joins at the next restart. None for waiting.
        replica_nodes: It trains on whole replicas of so many nodes; what is left over does nothing.
        copy_every: How many steps lie between two copies into a neighbour's memory; 0 for none.
        copy_s: How long such a copy stops the training.
        copy_reload_s: What loading it takes.
        copies_lost: Share of the interruptions that take the copies, too.
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
    node_share: float = 1.0
    nodes: int | None = None
    replica_nodes: int = 1
    copy_every: int = 0
    copy_s: float = 0.0
    copy_reload_s: float = 0.0
    copies_lost: float = 0.0

    def __post_init__(self) -> None:
        """Check that it can be.

        Raises:
            ConfigError: If a number cannot be.
        """
        times = (
            self.save_s, self.detect_s, self.restart_s, self.reload_s, self.flush_s, self.repair_s, self.copy_every,
            self.copy_s, self.copy_reload_s,
        )  # fmt: skip
        if not (self.step_s > 0 and self.save_every >= 1 and self.spares >= 0 and all(time >= 0 for time in times)):
            raise ConfigError(f"{self!r}: step_s must be above 0, save_every at least 1, and the others 0 or more.")
        shares = (self.node_share, self.copies_lost)
        if not all(0 <= share <= 1 for share in shares) or self.replica_nodes < 1:
            raise ConfigError(f"{self!r}: node_share and copies_lost are from 0 to 1, replica_nodes is at least 1.")
        if self.nodes is not None and (self.nodes < 1 or self.nodes % self.replica_nodes):
            raise ConfigError(f"{self!r}: nodes is a multiple of replica_nodes.")


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
    run = _Run(policy, math.inf if days is None else days * 86_400, math.inf if num_steps is None else num_steps)
    while not run.ends_before(next(at_s, math.inf)):
        pass
    return run.result()


class _Run:
    """A run while it is replayed: steps done, what is saved of them, and since when it runs."""

    def __init__(self, policy: Policy, until_s: float, most: float) -> None:
        self._policy, self._until_s, self._most = policy, until_s, most
        self._up_s = self._load_s = 0.0  # all ranks run from up_s on, and load first
        self._begin = self._stored = self._copied = 0  # steps: where this stretch begins, and what is kept of them
        self._count, self._step_s, self._repairs = 0, policy.step_s, list[float]()
        self._saving_s = self._again_s = self._down_s = 0.0
        self._end_s = until_s

    def ends_before(self, next_s: float) -> bool:
        """Train until the next interruption; return whether the run comes to its end before."""
        next_s, begin_s = max(next_s, self._up_s), self._up_s + self._load_s
        whole_s = math.inf if self._most == math.inf else self._until(int(self._most), with_stop=True)
        self._end_s = min(begin_s + whole_s, self._until_s)
        stop_s = min(self._end_s, next_s)
        trained_s = max(0.0, stop_s - begin_s)
        steps = min(self._last(trained_s, lambda step: self._until(step)), self._most)
        stopped_s = self._stopped(int(steps), trained_s)
        self._saving_s += stopped_s
        self._down_s += min(self._load_s, stop_s - self._up_s)
        if self._end_s <= next_s:
            self._begin = int(steps)
            return True
        self._interrupted(next_s, trained_s - stopped_s)
        return self._up_s >= self._until_s

    def _interrupted(self, now_s: float, stepping_s: float) -> None:
        policy, trained_s = self._policy, now_s - self._up_s - self._load_s
        self._count += 1
        self._stored = max(self._stored, self._kept(policy.save_every, trained_s - policy.flush_s))
        self._copied = max(self._copied, self._kept(policy.copy_every, trained_s))
        if self._is_one_of(policy.copies_lost):
            self._copied = 0
        self._load_s = policy.copy_reload_s if self._copied > self._stored else policy.reload_s
        resumed = max(self._stored, self._copied)
        self._again_s += stepping_s - (resumed - self._begin) * self._step_s
        self._begin, self._up_s = resumed, now_s + policy.detect_s + policy.restart_s
        if policy.repair_s:
            self._replace(now_s)
        self._end_s = self._until_s
        self._down_s += min(self._up_s, self._until_s) - now_s

    def _replace(self, now_s: float) -> None:
        """Let a spare take the place of a lost node; without one wait for a repair, or go on with fewer."""
        policy = self._policy
        while self._repairs and self._repairs[0] <= now_s:
            heapq.heappop(self._repairs)
        if self._is_one_of(policy.node_share):
            heapq.heappush(self._repairs, now_s + policy.repair_s)
        missing = max(0, len(self._repairs) - policy.spares)
        replicas = 0 if policy.nodes is None else (policy.nodes - missing) // policy.replica_nodes
        if policy.nodes is not None and replicas > 0:
            self._step_s = policy.step_s * policy.nodes / (replicas * policy.replica_nodes)
        elif missing:
            self._up_s = max(self._up_s, heapq.heappop(self._repairs) + policy.restart_s)

    def result(self) -> Replayed:
        """Return what it came to."""
        goodput = self._begin * self._policy.step_s / self._end_s
        return Replayed(
            goodput, self._end_s, self._begin, self._count, self._saving_s, self._again_s, self._down_s
        )  # fmt: skip

    # ---- how long a stretch takes

    def _stops(self, step: int) -> float:
        """Return how long saves and copies stop the training until after this step and what follows it."""
        policy = self._policy
        saves = step // policy.save_every - self._begin // policy.save_every
        copies = step // policy.copy_every - self._begin // policy.copy_every if policy.copy_every else 0
        return saves * policy.save_s + copies * policy.copy_s

    def _until(self, step: int, *, with_stop: bool = False) -> float:
        """Return the seconds of a stretch in which this step is done, with the save or copy after it or without."""
        if step <= self._begin:
            return 0.0
        return (step - self._begin) * self._step_s + self._stops(step if with_stop else step - 1)

    def _last(self, after_s: float, takes: Callable[[int], float], every: int = 1) -> int:
        """Return the last multiple of every that is done after so many seconds, or where the stretch begins."""
        low, high = self._begin // every, self._begin // every + 1 + int(max(0.0, after_s) / (every * self._step_s))
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if takes(middle * every) <= after_s + 1e-9 else (low, middle - 1)
        return max(self._begin, low * every) if every == 1 else low * every

    def _kept(self, every: int, after_s: float) -> int:
        """Return the newest step that a save or a copy of this stretch holds, 0 for none."""
        if not every:
            return 0
        found = self._last(after_s, lambda step: self._until(step, with_stop=True), every)
        return found if found > self._begin else 0

    def _stopped(self, steps: int, trained_s: float) -> float:
        """Return for how long of a stretch the training was stopped, its last stop perhaps cut short."""
        done_s, whole_s = self._until(steps), self._until(steps, with_stop=True)
        return done_s - (steps - self._begin) * self._step_s + min(max(0.0, trained_s - done_s), whole_s - done_s)

    def _is_one_of(self, share: float) -> bool:
        """Return whether this interruption is one of so large a share of all, evenly spaced."""
        return math.floor(self._count * share + 1e-9) > math.floor((self._count - 1) * share + 1e-9)


def young_interval_s(save_s: float, mean_s: float) -> float:
    """Return the time between saves that loses least, to first order: Young 1974, the square root of 2 C M."""
    return math.sqrt(2 * save_s * mean_s)
