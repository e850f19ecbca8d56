"""When the last bucket of a plan is averaged: buckets leave in order, one at a time, each when its gradients are there.

Times are whole microseconds, as virtual time counts: the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """What a plan is made for.

    Attributes:
        num_bytes: Of each parameter's gradient, in the order of the model.
        ready_us: When each is complete, from the beginning of backward on.
        start_us: What an all-reduce costs however little it carries.
        bytes_per_us: How fast it carries.
    """

    num_bytes: Sequence[int]
    ready_us: Sequence[int]
    start_us: int
    bytes_per_us: int

    def all_reduce_us(self, num_bytes: int) -> int:
        """Return how long an all-reduce of so many bytes takes, rounded up."""
        return self.start_us - (-num_bytes // self.bytes_per_us)

    def in_order(self) -> list[int]:
        """Return the parameters in the order in which their gradients are complete; of equals the later one first."""
        return sorted(range(len(self.ready_us)), key=lambda index: (self.ready_us[index], -index))


def end_us(step: Step, plan: Sequence[Sequence[int]]) -> int:
    """Return when the last bucket of a plan is averaged."""
    free = 0
    for bucket in plan:
        ready = max(step.ready_us[index] for index in bucket)
        free = max(ready, free) + step.all_reduce_us(sum(step.num_bytes[index] for index in bucket))
    return free


def one_bucket(step: Step) -> list[list[int]]:
    """Return the plan without overlap: everything together, when backward is over."""
    return [list(range(len(step.num_bytes)))]


def torchs(step: Step, cap: int = 25 * 2**20, first: int = 2**20) -> list[list[int]]:
    """Return buckets as torch's DDP cuts them by default: at most 25 MiB each, the first at most 1 MiB."""
    return _filled(step, lambda plan: first if len(plan) == 1 else cap)


def _filled(step: Step, cap_of: Callable[[list[list[int]]], int]) -> list[list[int]]:
    plan: list[list[int]] = []
    held = 0
    for index in step.in_order():
        if not plan or held + step.num_bytes[index] > cap_of(plan):
            plan, held = [*plan, []], 0
        plan[-1].append(index)
        held += step.num_bytes[index]
    return plan


def merged(step: Step) -> list[list[int]]:
    """Return MG-WFBP's plan: a gradient joins the bucket before it if waiting for it costs less than another start.

    Source: Shi, Chu and Li 2019, "MG-WFBP: Efficient Data Communication for Distributed Synchronous SGD Algorithms".
    """
    plan: list[list[int]] = []
    free = held = leaves = 0
    for index in step.in_order():
        ready = step.ready_us[index]
        if not plan or ready - leaves >= step.start_us:
            free = leaves + step.all_reduce_us(held) if plan else 0
            plan, held = [*plan, []], 0
        plan[-1].append(index)
        held += step.num_bytes[index]
        leaves = max(ready, free)
    return plan


def least_us(step: Step) -> int:
    """Return the end of the best plan whose buckets hold gradients that are complete one after another."""
    order = step.in_order()
    ends = [0]
    for last in range(1, len(order) + 1):
        ready, held, best = step.ready_us[order[last - 1]], 0, None
        for first in range(last, 0, -1):
            held += step.num_bytes[order[first - 1]]
            end = max(ready, ends[first - 1]) + step.all_reduce_us(held)
            best = end if best is None else min(best, end)
        assert best is not None
        ends.append(best)
    return ends[-1]
