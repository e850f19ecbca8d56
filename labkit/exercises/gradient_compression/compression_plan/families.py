"""Families of compression plans: how a budget of bytes is spread over steps and layers by four numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from labkit.plans.compressed_steps import Plan, most_entries, plan_bytes


@dataclass(frozen=True)
class Family:
    """How the bytes are spread.

    Attributes:
        bits: Of each entry.
        every: The training sends in every n-th step, and in the last one.
        ramp: Bytes of a step grow as this power of its number; below 0 they shrink.
        evenness: Bytes of a layer grow as this power of its size.
    """

    bits: int
    every: int = 1
    ramp: float = 0.0
    evenness: float = 1.0


def plan_of(family: Family, sizes: Sequence[int], num_steps: int, budget: float) -> Plan:
    """Return the family's plan for these layers, steps and bytes; what rounding leaves over goes to later steps."""
    sends = [step for step in range(num_steps) if (num_steps - 1 - step) % family.every == 0]
    weights = {step: (step + 1) ** family.ramp for step in sends}
    shares = [size**family.evenness for size in sizes]
    left, to_come, plan = float(budget), sum(weights.values()), []
    for step in range(num_steps):
        bytes_now = left * weights[step] / to_come if step in weights else 0.0
        plan.append(_spread(sizes, [bytes_now * share / sum(shares) for share in shares], family.bits))
        to_come -= weights.get(step, 0.0)
        left -= plan_bytes(plan[-1:], sizes)
    return plan


def naive(sizes: Sequence[int], num_steps: int, budget: float) -> Plan:
    """Return the same share of every layer in every step, in 32 bits."""
    return [_spread(sizes, [budget / num_steps * size / sum(sizes) for size in sizes], 32)] * num_steps


def _spread(sizes: Sequence[int], bytes_of_layers: Sequence[float], bits: int) -> list[tuple[int, int]]:
    """Return a step in which each layer sends what its bytes hold."""
    return [(most_entries(int(each), bits, size), bits) for size, each in zip(sizes, bytes_of_layers, strict=True)]


QSPARSE = Family(4, every=2)
"""Qsparse-local-SGD (Basu and others, 2019): top-k of few bits, sent in every second step; shares by size."""

FAMILIES: tuple[Family, ...] = (
    Family(4, every=2, evenness=0.5),
    Family(4, every=2, ramp=-0.25, evenness=0.6),
    Family(4, every=2, ramp=-0.25, evenness=0.0),
    Family(4, every=3, evenness=0.5),
)
"""What wins in one case or another, of the 150 that tests/plans/compression_plan_search.py tries."""
