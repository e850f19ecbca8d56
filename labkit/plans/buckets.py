"""When the buckets of one step are ready, sent and averaged: backward makes gradients evenly, one link takes turns."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from labkit.errors import ConfigError

MEMORY_BPS = 1.6e12
"""Of an A100's memory, bytes per second; what a hook costs is counted in passes over a gradient at this speed."""


@dataclass(frozen=True)
class Hook:
    """What a communication hook does to a gradient.

    Attributes:
        passes: How often it reads or writes the gradient: an assumption, as lesson 10 makes it.
        packed: Bytes sent for a parameter's gradient of so many bytes.
        gathered: Whether packets cannot be added, so that every rank gathers all of them.
    """

    passes: float
    packed: Callable[[float], float]
    gathered: bool = False


HOOKS: Mapping[str, Hook] = {
    "none": Hook(0, lambda size: size),
    "fp16": Hook(4, lambda size: size / 2),
    "PowerSGD, rank 4": Hook(12, lambda size: min(size, 16 * math.sqrt(size))),
    "top 1 %": Hook(100, lambda size: 0.02 * size, gathered=True),
}
"""By name; PowerSGD sends 2 * 4 * sqrt(n) float32 of n numbers, top 1 % a number and its place for each hundredth."""


@dataclass(frozen=True)
class Link:
    """What one step depends on besides its buckets.

    Attributes:
        backward_s: Time of backward.
        num_ranks: N.
        latency_s: Latency of a message, in seconds.
        bandwidth_Bps: Rate of a link, bytes per second.
        skew_s: How much later than rank 0 the slowest rank has each gradient; all wait for it.
        hook: One of HOOKS.
    """

    backward_s: float
    num_ranks: int
    latency_s: float
    bandwidth_Bps: float  # noqa: N815  as the lessons write it
    skew_s: float = 0.0
    hook: str = "none"

    def all_reduce_s(self, num_bytes: float) -> float:
        """Return the time of a ring all_reduce."""
        return 2 * (self.num_ranks - 1) * (self.latency_s + num_bytes / self.num_ranks / self.bandwidth_Bps)

    def send_s(self, size: float, packed: float) -> float:
        """Return the time of hook and transfer for a bucket of so many bytes, before and after the hook."""
        hook = HOOKS[self.hook]
        gather = (self.num_ranks - 1) * (self.latency_s + packed / self.bandwidth_Bps)
        transfer = gather if hook.gathered else self.all_reduce_s(packed)
        return hook.passes * size / MEMORY_BPS + transfer


@dataclass(frozen=True)
class Sent:
    """One bucket, in seconds from a common moment on.

    Attributes:
        num_bytes: What is sent of it.
        ready: When its last gradient is complete on this rank.
        all_ready: When it is on every rank.
        start: When its transfer begins.
        end: When it ends.
    """

    num_bytes: float
    ready: float
    all_ready: float
    start: float
    end: float


def sent(
    sizes: Sequence[float],
    plan: Sequence[Sequence[int]],
    link: Link,
    used: Sequence[int] | None = None,
    packed: Sequence[float] | None = None,
) -> list[Sent]:
    """Return what becomes of each bucket, from the begin of backward on.

    An empty bucket is DDP's all_reduce of one int32 for each parameter, after backward: who has used it.

    Args:
        sizes: Bytes of each parameter's gradient, in the order of the model.
        plan: Indices into sizes, bucket by bucket in the order they are sent.
        link: Times and speeds.
        used: Indices in the order in which forward uses them; None: 0, 1, 2, ...
        packed: Bytes of each parameter's gradient after the hook; None: as the hook counts them for square matrices.
    """
    packed = list(map(HOOKS[link.hook].packed, sizes)) if packed is None else packed
    total, summed = sum(sizes), 0.0
    done = {}
    for index in reversed(range(len(sizes)) if used is None else used):
        summed += sizes[index]
        done[index] = summed / total * link.backward_s
    free, found = 0.0, []
    for bucket in plan:
        num_bytes = sum(packed[index] for index in bucket) if bucket else 4 * len(sizes)
        lasts = (
            link.send_s(sum(sizes[index] for index in bucket), num_bytes) if bucket else link.all_reduce_s(num_bytes)
        )
        ready = max((done[index] for index in bucket), default=link.backward_s)
        start = max(ready + link.skew_s, free)
        free = start + lasts
        found.append(Sent(num_bytes, ready, ready + link.skew_s, start, free))
    return found


@dataclass(frozen=True)
class BrokenRule:
    """What is wrong with a plan.

    Attributes:
        kind: Of its parameters: "outside" (there is no such one), "missing", "twice". Of its buckets: "order" (not from
            the last parameter to the first), "empty", "over_cap", "still_fits" (cut too early).
        text: A sentence with the numbers.
    """

    kind: str
    text: str


def read_buckets(plan: object) -> list[list[int]]:
    """Return a plan as lists.

    Raises:
        ConfigError: If it is no list of lists of indices.
    """
    try:
        return [[int(index) for index in bucket] for bucket in plan]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise ConfigError(f"The plan is {plan!r:.60}; it must be a list of buckets, each a list of indices.") from None


def checked(plan: object, num_parameters: int) -> tuple[list[list[int]], str]:
    """Return a plan as lists of the parameters there are, without empty ones, and what is wrong with it, or "".

    Raises:
        ConfigError: If it is no list of lists of indices.
    """
    buckets = read_buckets(plan)
    inside = [[index for index in bucket if 0 <= index < num_parameters] for bucket in buckets]
    problem = next((rule.text for rule in _of_parameters(buckets, num_parameters)), "")
    return [bucket for bucket in inside if bucket], problem


def broken_rules(buckets: Sequence[Sequence[int]], sizes: Sequence[int], cap: int) -> list[BrokenRule]:
    """Return every broken rule of the parameters; where none is, the first one of the buckets.

    Args:
        buckets: Indices of the parameters in each bucket, in the order they are sent.
        sizes: Bytes of each parameter.
        cap: Bytes a bucket may hold, unless one parameter alone is larger.
    """
    if found := _of_parameters(buckets, len(sizes)):
        return found
    flat = [index for bucket in buckets for index in bucket]
    if flat != sorted(flat, reverse=True):
        text = f"The parameters come in the order {flat}: begin with the last one, whose gradient is there first, "
        return [BrokenRule("order", text + "and go down to 0.")]
    for number, bucket in enumerate(buckets):
        if not bucket:
            return [BrokenRule("empty", f"Bucket {number} is empty.")]
        held = sum(sizes[index] for index in bucket)
        if len(bucket) > 1 and held > cap:
            return [BrokenRule("over_cap", f"Bucket {number} holds {held} bytes, and the cap is {cap}.")]
        after = buckets[number + 1][0] if number + 1 < len(buckets) and buckets[number + 1] else None
        if after is not None and held + sizes[after] <= cap:
            text = f"Bucket {number} holds {held} bytes; parameter {after} with {sizes[after]} bytes still fits under "
            return [BrokenRule("still_fits", text + f"the cap of {cap}.")]
    return []


def _of_parameters(buckets: Sequence[Sequence[int]], num_parameters: int) -> list[BrokenRule]:
    seen = Counter(index for bucket in buckets for index in bucket)
    found = [
        BrokenRule("outside", f"There is no parameter {index}; they are 0 to {num_parameters - 1}.")
        for index in seen
        if not 0 <= index < num_parameters
    ][:1]
    missing = [index for index in range(num_parameters) if index not in seen]
    twice = sorted(index for index, count in seen.items() if count > 1)
    if missing:
        text = f"Parameter {missing[0]} is in no bucket: its gradient is never averaged."
        found.append(BrokenRule("missing", text))
    if twice:
        text = f"Parameter {twice[0]} is in two buckets: its gradient is averaged twice."
        found.append(BrokenRule("twice", text))
    return found
