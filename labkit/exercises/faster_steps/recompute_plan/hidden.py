"""Hidden cases of recompute_plan: none is solved by dropping what looks cheapest."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from labkit.checks.case import Case
from labkit.checks.challenge import for_half_and_all
from labkit.checks.values import integer, listed
from labkit.exercises.faster_steps.recompute_plan.exercise import GPT_BLOCK, plan_case
from labkit.plans.recompute import Recomputing, fewest_again_us, recomputing


def cases(draw: random.Random) -> list[Case]:
    return for_half_and_all([_hard(draw, _gpt_blocks), *(_hard(draw, partial(_blocks, size)) for size in (5, 6, 7))])


def _gpt_blocks(draw: random.Random) -> Case:
    return plan_case("blocks of the GPT", GPT_BLOCK, draw.randint(3, 5), draw.uniform(0.1, 0.7))


def _blocks(size: int, draw: random.Random) -> Case:
    block = [(draw.randint(20, 900), draw.randint(50, 2000)) for _ in range(size)]
    return plan_case("drawn blocks", block, 4, draw.uniform(0.15, 0.5))


def _hard(draw: random.Random, drawn: Callable[[random.Random], Case]) -> Case:
    """Return the first case drawn in which every rule of thumb computes more again than it must."""
    while True:
        case = drawn(draw)
        inputs = case.inputs[0]
        sizes, times, limit = listed(inputs, "sizes_mb"), listed(inputs, "times_us"), integer(inputs, "limit_mb")
        least = fewest_again_us(sizes, times, limit)
        assert least is not None, "the naive plan fits"
        if all(found.again_us > least for found in _rules_of_thumb(sizes, times, limit)):
            return case


def _rules_of_thumb(sizes: Sequence[int], times: Sequence[int], limit: int) -> Iterator[Recomputing]:
    """Yield what fits of: most MB a us dropped first, or most off the peak a us; and what fits is taken back."""
    cheapest = sorted(range(len(sizes)), key=lambda each: -sizes[each] / times[each])
    plans = [
        _dropped(sizes, times, limit, lambda kept: next(each for each in cheapest if each in kept)),
        _dropped(sizes, times, limit, lambda kept: _lowers_the_peak(sizes, times, kept)),
    ]
    for kept in plans:
        for each in sorted(set(cheapest) - set(kept), key=lambda each: -times[each]):
            more = sorted([*kept, each])
            kept = more if recomputing(sizes, times, more).peak_mb <= limit else kept
        found = recomputing(sizes, times, kept)
        if found.peak_mb <= limit:
            yield found


def _dropped(
    sizes: Sequence[int], times: Sequence[int], limit: int, next_of: Callable[[list[int]], int]
) -> list[int]:  # fmt: skip
    kept = list(range(len(sizes)))
    while kept and recomputing(sizes, times, kept).peak_mb > limit:
        kept.remove(next_of(kept))
    return kept


def _lowers_the_peak(sizes: Sequence[int], times: Sequence[int], kept: list[int]) -> int:
    """Return whose drop takes most off the peak, for its time; where none takes anything, the most MB a us."""

    def without(each: int) -> int:
        return recomputing(sizes, times, [other for other in kept if other != each]).peak_mb

    now = recomputing(sizes, times, kept).peak_mb
    return max(kept, key=lambda each: (max(0.0, (now - without(each)) / times[each]), sizes[each] / times[each]))
