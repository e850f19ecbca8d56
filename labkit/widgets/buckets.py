"""When the buckets of one step are ready, sent and averaged: backward makes gradients evenly, one link takes turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from labkit.errors import ConfigError


@dataclass(frozen=True)
class Link:
    """What one step depends on besides its buckets.

    Attributes:
        backward_s: Time of backward.
        num_ranks: N.
        latency_s: Of a message.
        bandwidth_Bps: Of a link, bytes per second.
    """

    backward_s: float
    num_ranks: int
    latency_s: float
    bandwidth_Bps: float  # noqa: N815  as the lessons write it

    def all_reduce_s(self, num_bytes: float) -> float:
        """Return the time of a ring all_reduce."""
        return 2 * (self.num_ranks - 1) * (self.latency_s + num_bytes / self.num_ranks / self.bandwidth_Bps)


@dataclass(frozen=True)
class Sent:
    """One bucket: its bytes, when its last gradient is complete, when its all_reduce begins and ends (seconds)."""

    num_bytes: int
    ready: float
    start: float
    end: float


def bucket_plan(sizes: Sequence[int], cap_bytes: float) -> list[list[int]]:
    """Return the buckets in the order they are sent: from the last parameter to the first, each filled to the cap."""
    plan: list[list[int]] = []
    room = 0.0
    for index, size in sorted(enumerate(sizes), reverse=True):
        if size > room or not plan:
            plan, room = [*plan, []], cap_bytes
        plan[-1] += [index]
        room -= size
    return plan


def sent(sizes: Sequence[int], plan: Sequence[Sequence[int]], link: Link) -> list[Sent]:
    """Return what becomes of each bucket.

    Args:
        sizes: Bytes of each parameter's gradient, in the order of the model.
        plan: Indices into sizes, bucket by bucket in the order they are sent.
        link: Times and speeds.
    """
    total, summed = sum(sizes), 0
    done = {}
    for index in reversed(range(len(sizes))):
        summed += sizes[index]
        done[index] = summed / total * link.backward_s
    free, found = 0.0, []
    for bucket in plan:
        num_bytes = sum(sizes[index] for index in bucket)
        ready = max((done[index] for index in bucket), default=0.0)
        start = max(ready, free)
        free = start + link.all_reduce_s(num_bytes)
        found.append(Sent(num_bytes, ready, start, free))
    return found


def checked(plan: object, num_parameters: int) -> tuple[list[list[int]], str]:
    """Return a plan as lists, and what is wrong with it in a sentence, or "".

    Raises:
        ConfigError: If it is no list of lists of indices.
    """
    try:
        buckets = [[int(index) for index in bucket] for bucket in plan]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise ConfigError(f"The plan is {plan!r:.60}; it must be a list of buckets, each a list of indices.") from None
    seen = [index for bucket in buckets for index in bucket]
    outside = [index for index in seen if not 0 <= index < num_parameters]
    missing = sorted(set(range(num_parameters)) - set(seen))
    twice = sorted({index for index in seen if seen.count(index) > 1})
    problem = ""
    if outside:
        problem = f"There is no parameter {outside[0]}; they are 0 to {num_parameters - 1}."
    elif missing:
        problem = f"Parameter {missing[0]} is in no bucket: its gradient is never averaged."
    elif twice:
        problem = f"Parameter {twice[0]} is in two buckets: its gradient is averaged twice."
    return [[index for index in bucket if 0 <= index < num_parameters] for bucket in buckets], problem
