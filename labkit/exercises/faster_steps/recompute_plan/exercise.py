"""A recompute plan: which tensors are kept for backward, so that it fits and little is computed again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from labkit.checks.case import Case, Values
from labkit.checks.challenge import Challenge, Pars
from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.checks.structure import NOTHING, Each
from labkit.checks.values import integer, listed
from labkit.checks.wire import Wire
from labkit.exercises.faster_steps.recompute_plan.driver import drive
from labkit.plans.recompute import fewest_again_us, recomputing

GPT_BLOCK = (
    (67, 46), (201, 1042), (1074, 415), (1074, 737), (67, 415), (67, 347), (67, 46), (268, 1389), (268, 184),
    (67, 1389),
)  # fmt: skip
"""Megabytes and microseconds of what a block of the lesson makes, 8192 tokens wide 4096 on a virtual H100."""


def plan_case(name: str, block: Sequence[tuple[int, int]], num_blocks: int, room: float) -> Case:
    """Return a case: equal blocks, and a limit between what the naive plan takes (0) and what everything takes (1)."""
    sizes, times = ([each[place] for each in block] * num_blocks for place in range(2))
    least = recomputing(sizes, times, ends_of_blocks(len(sizes), len(block))).peak_mb
    limit = least + int(room * (sum(sizes) - least))
    inputs: Values = {"sizes_mb": [*sizes], "times_us": [*times], "limit_mb": limit, "per_block": len(block)}
    return Case(f"{name}, limit {limit:,} of {sum(sizes):,} MB", 1, (inputs,))


def ends_of_blocks(count: int, per_block: int) -> list[int]:
    """Return the naive plan: what leaves each block is kept, as with a checkpoint round every block."""
    return list(range(per_block - 1, count, per_block))


def structure(case: Case) -> list[Any]:
    """Return what results look like: as many indices as anybody likes."""
    return [{"kept": Each(int, most=len(listed(case.inputs[0], "sizes_mb")))}]


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what makes a plan no plan: indices that do not exist or are out of order, or memory beyond the limit."""
    sizes, kept = listed(case.inputs[0], "sizes_mb"), listed(got[0], "kept")
    if any(isinstance(each, bool) for each in kept):
        yield Finding("flags, not indices", f"The plan holds {kept[0]!r}; it lists the tensors that are kept.")
    for each in kept:
        if not isinstance(each, int) or not 0 <= each < len(sizes):
            yield Finding("no such tensor", f"The plan keeps tensor {each}; there are 0 to {len(sizes) - 1}.")
    for one, other in pairwise(kept):
        if other <= one:
            yield Finding("not ascending", f"In the plan {other} comes after {one}.")
    limit = integer(case.inputs[0], "limit_mb")
    facts = recomputing(sizes, listed(case.inputs[0], "times_us"), kept)
    if facts.peak_mb <= limit:
        yield from _of_the_others(case, kept, facts.again_us)
        return
    held = sum(sizes[each] for each in kept if each <= facts.fullest)
    where = f"after tensor {facts.fullest}" if facts.fullest >= 0 else "before the first kept tensor"
    if not kept:
        said = f"The plan keeps nothing: the peak is {facts.peak_mb:,} MB, all of it computed again at once."
        yield Finding("nothing kept", said)
    name = "too much between" if sum(sizes[each] for each in kept) <= limit else "too much kept"
    yield Finding(
        name,
        f"The peak is {facts.peak_mb:,} MB, {where}: {held:,} MB kept so far, {facts.peak_mb - held:,} MB computed "
        "again.",
        f"at most {limit:,} MB",
        f"{facts.peak_mb:,} MB",
    )


def _of_the_others(case: Case, kept: Sequence[int], again_us: int) -> Iterator[Finding]:
    """Yield that a plan is worse than the naive one, and that its rest fits and would be better."""
    sizes, times, limit = _asked(case)
    others = [each for each in range(len(sizes)) if each not in kept]
    facts = recomputing(sizes, times, others)
    if facts.peak_mb <= limit and facts.again_us / 1e3 < pars(case).naive <= again_us / 1e3:
        said = f"The plan computes {again_us / 1e3:g} ms again; with all other tensors kept it would be "
        yield Finding("the tensors that are dropped", f"{said}{facts.again_us / 1e3:g} ms.")


def score(case: Case, got: tuple[Values, ...]) -> float:
    """Return the milliseconds that backward computes again."""
    return _again_ms(case, listed(got[0], "kept"))


def pars(case: Case) -> Pars:
    """Return what checkpoints round every block take, and the least there is, which Checkmate looks for.

    Source: Jain et al. 2020, "Checkmate: Breaking the memory wall with optimal tensor rematerialization".
    """
    sizes, times, limit = _asked(case)
    naive = ends_of_blocks(len(sizes), integer(case.inputs[0], "per_block"))
    least = fewest_again_us(sizes, times, limit)
    assert least is not None, "the naive plan fits"
    return Pars(_again_ms(case, naive), least / 1e3, least / 1e3)


def _again_ms(case: Case, kept: Sequence[int]) -> float:
    sizes, times, _ = _asked(case)
    return recomputing(sizes, times, kept).again_us / 1e3


def _asked(case: Case) -> tuple[list[int], list[int], int]:
    inputs = case.inputs[0]
    return listed(inputs, "sizes_mb"), listed(inputs, "times_us"), integer(inputs, "limit_mb")


EXERCISE = declared(
    id="recompute_plan",
    functions=("recompute_plan",),
    driver=drive,
    oracle=lambda case: [],
    structure=structure,
    looks=(find,),
    visible=(
        plan_case("four blocks of the GPT", GPT_BLOCK, 4, 0.5),
        plan_case("four blocks, little room", GPT_BLOCK, 4, 0.05),
        plan_case("other blocks", [(40, 900), (400, 100), (90, 500), (300, 2000)], 5, 0.3),
    ),
    distributed=False,
    hints=(
        "Which tensors are large and quick to recompute? What does dropping one of them save, and what does it cost?",
        "Begin with everything kept. Drop the tensor with the most megabytes per microsecond, look at the peak, and "
        "go on until it fits. That beats a checkpoint around every block, and is easy to try.",
        "The peak is reached near the end, where all that is kept is still there: late tensors are worth dropping "
        "more than early ones. For the least, go through the chain once and keep, for each tensor that may be the last "
        "one kept so far, the ways that no other beats in both memory and time.",
    ),
    mistakes=(
        Mistake(NOTHING, "recompute_plan must return the list."),
        Mistake("flags, not indices", "Return the indices of the kept tensors, not a flag for each tensor."),
        Mistake("the tensors that are dropped",
                "Are these the tensors that you drop? The list holds those that are kept."),
        Mistake("no such tensor", "Return indices into sizes_mb. The chain's input is always kept and has no index."),
        Mistake("not ascending", "Return the indices in ascending order, each once."),
        Mistake("too much kept", "The kept tensors alone exceed the limit: drop something."),
        Mistake("nothing kept",
                "The list is empty, so the whole chain is computed again at once. Does your search reach a plan that "
                "fits, and return it? If it goes on from one way to each tensor, the fastest, it has lost the slower "
                "ways that hold less."),
        Mistake("too much between",
                "The kept tensors fit, but too much is recomputed at once between two of them: keep one in between."),
    ),
    challenge=Challenge("ms computed again", score, pars, plan="kept", reference="Checkmate", best="optimum"),
)  # fmt: skip
