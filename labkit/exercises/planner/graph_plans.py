"""The best plans of an operator graph: with stages that are alike, and by Alpa's two levels. No rank imports this."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from labkit.exercises.planner.graphs import Described
from labkit.plans.operator_graph import WAYS, Graph, Stage, graph_of, stage_seconds, step_seconds


class Way(NamedTuple):
    """What some operators take at least on some GPUs, and by which ways."""

    seconds: float
    ways: tuple[int, ...]


def within(graph: Graph, first: int, last: int, gpus: int, *, how: str = "") -> Way:
    """Return the fastest ways of operators first to last as one stage: the lower level.

    Operators are added one by one; of all ways so far, those that differ only in operators which nothing reads any more
    are one, the fastest. A usual mistake is made where `how` is "no skips" (each reads its predecessor alone), "last
    way" (that of the last operator is all that is known), "one by one" (each takes what is fastest so far), "no
    between" (bringing over is free) or "one way" (all operators of a stage are cut alike).
    """
    if how == "one way":
        alike = [(way,) * (last - first + 1) for way in range(len(WAYS))]
        return min(Way(stage_seconds(graph, first, Stage(gpus, ways)), ways) for ways in alike)
    edges = [(a, b) for a, b in graph.between if first <= a and b <= last and (how != "no skips" or b == a + 1)]
    best: dict[tuple[tuple[int, int], ...], Way] = {(): Way(0.0, ())}
    for at in range(first, last + 1):
        after: dict[tuple[tuple[int, int], ...], Way] = {}
        read_later = {a for a, b in edges if b > at}
        for known, way in best.items():
            for mine in range(len(WAYS)):
                took = way.seconds + graph.seconds[at][gpus][mine]
                if how != "no between":
                    took += sum(graph.between[a, b][gpus][way.ways[a - first]][mine] for a, b in edges if b == at)
                key = tuple(each for each in (*known, (at, mine)) if each[0] in read_later)
                key = {"last way": ((at, mine),), "one by one": (), "no between": ()}.get(how, key)
                tried = Way(took, (*way.ways, mine))
                after[key] = min(after.get(key, tried), tried)
        best = after
    return min(best.values())


def two_levels(graph: Graph, *, how: str = "") -> list[Stage]:
    """Return the plan with the shortest step: for each limit on the slowest stage, the stages with the least sum.

    Beside what `within` knows, `how` is "slowest" (only the slowest stage counts), "sum" (only the sum), "one twice"
    (M x max(t) in place of (M - 1) x max(t)), "one less" (M - 2), "below" (stages as slow as the limit are left out) or
    "alike" (all stages have as many GPUs).
    """
    if how == "alike":
        plans = [_cut(graph, [gpus], how) for gpus in graph.seconds[0]]
        return min((plan for plan in plans if plan), key=lambda plan: step_seconds(graph, plan))
    return _cut(graph, list(graph.seconds[0]), how)


def _cut(graph: Graph, sizes: Sequence[int], how: str) -> list[Stage]:
    """Return the best stages of these numbers of GPUs, [] where there are none: the upper level."""
    count = len(graph.seconds)
    spans = [(first, last) for last in range(count) for first in range(last + 1)]
    cheapest = {(*span, gpus): within(graph, *span, gpus, how=how) for span in sorted(spans) for gpus in sizes}
    best: tuple[float, list[Stage]] = (math.inf, [])
    for limit in sorted({way.seconds for way in cheapest.values()}):
        of = {"sum": 0.0, "slowest": 1e6, "one twice": graph.num_microbatches, "one less": graph.num_microbatches - 2}
        times = of.get(how, graph.num_microbatches - 1)
        slowest = times * limit
        if slowest >= best[0]:
            break
        least: dict[tuple[int, int], tuple[float, list[Stage]]] = {(0, 0): (0.0, [])}
        for (first, last, gpus), way in cheapest.items():  # in the order of first, so what comes before is known
            for used in range(graph.num_gpus - gpus + 1):
                before = least.get((first, used))
                if before is None or way.seconds > limit or (how == "below" and way.seconds == limit):
                    continue
                took = before[0] + way.seconds
                if took < least.get((last + 1, used + gpus), (math.inf, []))[0]:
                    least[last + 1, used + gpus] = took, [*before[1], Stage(gpus, way.ways)]
        total, stages = least.get((count, graph.num_gpus), (math.inf, []))
        if total + slowest < best[0]:
            best = total + slowest, stages
    return best[1]


def equal_stages(graph: Graph) -> list[Stage]:
    """Return the best plan whose stages have as many operators and GPUs each, all cut in one way."""
    count = len(graph.seconds)
    plans = []
    for gpus in graph.seconds[0]:
        num_stages = graph.num_gpus // gpus
        if num_stages > count:
            continue
        lengths = [count // num_stages + (stage < count % num_stages) for stage in range(num_stages)]
        plans += [[Stage(gpus, (way,) * each) for each in lengths] for way in range(len(WAYS))]
    return min(plans, key=lambda plan: step_seconds(graph, plan))


@lru_cache(maxsize=64)
def known(described: Described) -> tuple[float, float]:
    """Return what a step takes by stages that are alike, and by two levels, in seconds."""
    operators, num_gpus, num_microbatches, skips = described
    graph = graph_of(operators, num_gpus, num_microbatches, skips=skips)
    return step_seconds(graph, equal_stages(graph)), step_seconds(graph, two_levels(graph))


SLIPS = (
    "no between", "no skips", "last way", "one by one", "one way", "one twice", "one less", "slowest", "sum", "below",
    "alike",
)  # fmt: skip
"""What `two_levels` can be told to do wrong."""


@lru_cache(maxsize=64)
def slips(described: Described) -> dict[str, float]:
    """Return what a step takes by the plan of each usual mistake that costs something here, in seconds."""
    operators, num_gpus, num_microbatches, skips = described
    graph = graph_of(operators, num_gpus, num_microbatches, skips=skips)
    plans = {how: two_levels(graph, how=how) for how in SLIPS}
    took = {how: step_seconds(graph, stages) for how, stages in plans.items() if stages}
    return {how: seconds for how, seconds in took.items() if not math.isclose(seconds, known(described)[1])}
