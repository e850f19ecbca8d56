"""Which part of a sum is off, and how: what differs is the same multiple of one part in every number of a case."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from labkit.exercises.planner.as_data import is_number
from labkit.plans.planned_step import Job, Plan

_MOST = 3
"""So many ways to come to the same numbers are told."""
Numbers = Sequence[Any]
"""A number for each plan, or a list of numbers."""


def off_by_a_part(came: Numbers, exact: Numbers, parts: Mapping[str, Numbers], job: Job, plans: Sequence[Plan]) -> str:
    """Return which part of all numbers is off and by which factor, as a sentence that begins with a space, or "".

    Args:
        came: A number, or a list of numbers, for each plan.
        exact: What should have come.
        parts: What is added up in it, by name; each has the form of `exact`.
        job: What is trained.
        plans: Of each number.
    """
    mine, right = list(_flat(came)), list(_flat(exact))
    if len(mine) != len(right) or not all(map(is_number, mine)):
        return ""
    owner = [plan for plan, value in zip(plans, exact, strict=True) for _ in _flat([value])]
    found: dict[tuple[float, ...], str] = {}  # parts that are alike in these plans are told by the first one's name
    for name, part in parts.items():
        numbers = tuple(_flat(part))
        said = _of_part(mine, right, numbers, job, owner)
        if said and numbers not in found:
            found[numbers] = f"{name} {said}"
    ways = sorted(found.values(), key=lambda way: not way.endswith(_SIMPLE))[:_MOST]
    if not ways:
        return ""
    told = f"{', '.join(ways[:-1])} or {ways[-1]}" if ways[1:] else ways[0]
    return f" It comes out like this with {told}."


def _of_part(
    mine: Sequence[float], right: Sequence[float], part: Sequence[float], job: Job, owner: Sequence[Plan]
) -> str:
    factors = []
    for one, other, share, plan in zip(mine, right, part, owner, strict=True):
        if share:
            factors.append((1 + (one - other) / share, plan))
        elif not math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-12):
            return ""
    if not factors or all(_close(factor, 1) for factor, _ in factors):
        return ""
    first = factors[0][0]
    if all(_close(factor, first) for factor, _ in factors):
        said = _constant(first)
        return said if said in _SIMPLE or len(factors) > 2 else ""
    for name, size in _quantities(job):
        sizes = [size(plan) for _, plan in factors]
        if all(_close(factor, each) for (factor, _), each in zip(factors, sizes, strict=True)):
            return f"multiplied by {name}"
        if all(_close(factor * each, 1) for (factor, _), each in zip(factors, sizes, strict=True)):
            return f"divided by {name}"
    return ""


_SIMPLE = ("left out", "taken off instead of added", "counted twice", "counted half")


def _constant(factor: float) -> str:
    named = {0.0: _SIMPLE[0], -1.0: _SIMPLE[1], 2.0: _SIMPLE[2], 0.5: _SIMPLE[3]}
    said = next((said for times, said in named.items() if _close(factor, times)), "")
    share = Fraction(factor).limit_denominator(64)
    return said or (f"counted {share} times" if factor > 0 and _close(float(share), factor) else "")


def _quantities(job: Job) -> Iterator[tuple[str, Any]]:
    yield "plan.tensor", lambda plan: plan.tensor
    yield "plan.pipeline", lambda plan: plan.pipeline
    yield "plan.data", lambda plan: plan.data
    yield "plan.microbatch", lambda plan: plan.microbatch
    yield "the number of microbatches", lambda plan: plan.num_microbatches(job)
    yield "the number of a stage's layers", lambda plan: job.num_layers // plan.pipeline
    yield "job.num_tokens", lambda plan: job.num_tokens
    yield "job.width", lambda plan: job.width
    yield "the number of a microbatch's tokens", lambda plan: job.num_tokens * plan.microbatch


def _close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-6)


def _flat(values: Any) -> Iterator[Any]:
    for each in values:
        if isinstance(each, list | tuple):
            yield from _flat(each)
        else:
            yield each
