"""A server's policy as data, and what it does with a crew with one erratic worker.

A policy says how many gradients make a version, how far a worker may run ahead, and how long a step is for each
staleness. Synchronous, asynchronous, bounded and backup servers are policies; so is much that has no name.
"""

from __future__ import annotations

import heapq
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from labkit.plans.staleness import draws, lead

STEEPNESS = (1.0, 0.3, 0.1, 0.03)
GOAL = 0.01
SEEDS = (1, 2, 3, 4, 5, 6)
RATES = (0.5, 0.75, 1.0, 1.5, 2.0)
MOST_VERSIONS = 3000


@dataclass(frozen=True)
class Policy:
    """What a server does with a gradient.

    Attributes:
        needed: Gradients that make a version: it moves by their mean, each times its rate.
        bound: How many more pushes than the slowest worker one may have when it is answered; None for no bound.
        rates: Learning rate of a gradient of staleness 0, 1, 2 and so on; what is staler is dropped.
    """

    needed: int
    bound: int | None
    rates: tuple[float, ...]

    def __repr__(self) -> str:
        """Return it in one line: the first few of what may be thousands of rates."""
        return f"Policy(needed={self.needed}, bound={self.bound}, rates={reprlib.repr(self.rates)})"


@dataclass(frozen=True)
class Crew:
    """Workers that need 9 to 11 ms for a gradient; the last one is erratic.

    Attributes:
        num_workers: Workers.
        share: Share of the last one's steps in which it stalls.
        factor: How many times as long such a step takes.
    """

    num_workers: int
    share: float
    factor: float


@dataclass(frozen=True)
class Played:
    """What a policy came to with one seed.

    Attributes:
        ms: When the loss was reached; None if it never was.
        staleness: Of each gradient that was used, in order.
        dropped: Gradients that were not.
    """

    ms: float | None
    staleness: tuple[int, ...]
    dropped: int


def faults_of(policy: object, num_workers: int) -> list[str]:
    """Return what keeps a value from being a policy for so many workers, in sentences."""
    if not isinstance(policy, Mapping) or set(policy) != {"needed", "bound", "rates"}:
        return [f'A policy is {{"needed": ..., "bound": ..., "rates": [...]}}; this is {policy!r:.60}.']
    found = []
    needed, bound, rates = policy["needed"], policy["bound"], policy["rates"]
    if type(needed) is not int or not 1 <= needed <= num_workers:
        found.append(f"needed is {needed!r:.40}; it is a whole number from 1 to {num_workers}, the number of workers.")
    if bound is not None and (type(bound) is not int or bound < 0):
        found.append(f"bound is {bound!r:.40}; it is 0, 1, 2, ..., or None for no bound.")
    if not isinstance(rates, Sequence) or not rates or not all(type(each) in (int, float) for each in rates):
        found.append(f"rates is {rates!r:.40}; it is a list of numbers, at least that of staleness 0.")
    return found


def policy_of(plan: Mapping[str, Any]) -> Policy:
    """Return the policy that a valid plan describes."""
    return Policy(plan["needed"], plan["bound"], tuple(float(each) for each in plan["rates"]))


def play(policy: Policy, crew: Crew, seed: int) -> Played:
    """Return what a policy comes to: it pulls four weights downhill until the loss is GOAL.

    A worker is answered when the version that its gradient is part of has been made (a dropped one: at once), and it is
    no further ahead of the slowest than the bound. Some worker always computes: whom the bound holds back
    began its last push when the slowest had pushed already, so both pushes wait for the same version.
    """
    numbers, everybody = draws(seed), range(crew.num_workers)
    weights, history, now = (0.0,) * len(STEEPNESS), [(0.0,) * len(STEEPNESS)], 0.0
    pushes, read, waiting = [0] * crew.num_workers, [0] * crew.num_workers, set(everybody)
    gathered: list[tuple[float, int]] = []
    inside: set[int] = set()
    busy: list[tuple[float, int]] = []
    staleness, dropped = list[int](), 0
    while True:
        slowest = min(pushes)
        for worker in sorted(waiting - inside):
            if policy.bound is None or lead(pushes[worker], (slowest,)) <= policy.bound:
                waiting.remove(worker)
                read[worker] = len(history) - 1
                takes = 9 + 2 * next(numbers)
                stalls = next(numbers) < crew.share and worker == crew.num_workers - 1
                heapq.heappush(busy, (now + takes * (crew.factor if stalls else 1.0), worker))
        now, worker = heapq.heappop(busy)
        pushes[worker] += 1
        waiting.add(worker)
        late = len(history) - 1 - read[worker]
        if late >= len(policy.rates):
            dropped += 1
            if dropped > MOST_VERSIONS:
                return Played(None, tuple(staleness), dropped)
            continue
        gathered.append((policy.rates[late], worker))
        inside.add(worker)
        staleness.append(late)
        if len(gathered) < policy.needed:
            continue
        for rate, each in gathered:
            share, old = rate / policy.needed, history[read[each]]
            weights = tuple(
                w - share * (steep * (then - 1) + 0.6 * (next(numbers) - 0.5))
                for w, steep, then in zip(weights, STEEPNESS, old, strict=True)
            )
        history.append(weights)
        gathered.clear()
        inside.clear()
        loss = sum(steep * (w - 1) ** 2 for steep, w in zip(STEEPNESS, weights, strict=True)) / 2
        if loss <= GOAL:
            return Played(now, tuple(staleness), dropped)
        if not loss < 1e6 or len(history) > MOST_VERSIONS:
            return Played(None, tuple(staleness), dropped)


def milliseconds(policy: Policy, crew: Crew) -> float | None:
    """Return when the loss is reached, the mean over six seeds; None if it is not with one of them."""
    times = [play(policy, crew, seed).ms for seed in SEEDS]
    reached = [each for each in times if each is not None]
    return sum(reached) / len(reached) if len(reached) == len(times) else None


def synchronous(crew: Crew, rate: float = 1.0) -> Policy:
    """Return the policy of a synchronous server."""
    return Policy(crew.num_workers, None, (rate,))


def asynchronous(crew: Crew, rate: float = 1.0) -> Policy:
    """Return the policy of an asynchronous server, whose learning rate is N times smaller."""
    return Policy(1, None, (rate / crew.num_workers,) * 1000)


def bounded(crew: Crew, rate: float = 1.0, bound: int = 3) -> Policy:
    """Return the policy of a bounded server (Ho et al., 2013), whose learning rate is N times smaller."""
    return Policy(1, bound, (rate / crew.num_workers,) * 1000)


def staleness_aware(crew: Crew, rate: float = 1.0, needed: int = 1) -> Policy:
    """Return the policy of a server that divides the learning rate by a gradient's staleness (Zhang et al., 2016)."""
    return Policy(needed, None, tuple(rate / max(1, staleness) for staleness in range(1000)))


def with_best_rate(policy: Callable[[Crew, float], Policy], crew: Crew) -> tuple[float, float]:
    """Return the milliseconds of a policy with the best of `RATES`, and which that is."""
    found = [(milliseconds(policy(crew, rate), crew), rate) for rate in RATES]
    return min((ms, rate) for ms, rate in found if ms is not None)
