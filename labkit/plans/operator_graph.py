"""A model as operators that may each be cut in several ways, and a plan of it: stages on submeshes.

What an operator takes on a number of GPUs by a way, and what it takes to bring an activation from one way to the next,
are given as tables, as Alpa's compiler has them (Zheng and others 2022, arXiv 2201.12023, sections 4 and 5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WAYS = ("data", "columns", "rows")
_IN, _OUT = ("batch", "whole", "columns"), ("batch", "columns", "whole")
"""How an operator's input and output lie on its GPUs, by its way."""


@dataclass(frozen=True)
class Graph:
    """A model's operators in the order in which they run, and a cluster.

    Attributes:
        seconds: seconds[o][gpus][way] is what operator o takes for a microbatch on so many GPUs, cut in this way.
        between: between[a, b][gpus][way_a][way_b] is what it takes besides where b reads what a wrote and both are in
            one stage; a < b. Between stages it takes nothing.
        num_gpus: In all.
        num_microbatches: Of a step.
    """

    seconds: Sequence[Mapping[int, Sequence[float]]]
    between: Mapping[tuple[int, int], Mapping[int, Sequence[Sequence[float]]]]
    num_gpus: int
    num_microbatches: int


@dataclass(frozen=True)
class Stage:
    """Consecutive operators on GPUs of their own.

    Attributes:
        gpus: How many: a key of the graph's tables.
        ways: The way of each of its operators; as many operators as ways.
    """

    gpus: int
    ways: Sequence[int]


def graph_of(
    operators: Sequence[tuple[float, float, float]], num_gpus: int, num_microbatches: int, *, skips: Sequence[int] = ()
) -> Graph:
    """Return the graph of operators in a row on links of 100 GB/s.

    Args:
        operators: For each the milliseconds on one GPU, the megabytes of its weights and those of its output.
        num_gpus: In all; stages may have 1, 2, 4, ... of them.
        num_microbatches: Of a step.
        skips: Operators that read the output of the one before the last, too, as after a residual connection.
    """
    sizes = [size for size in (1, 2, 4, 8, 16) if size <= num_gpus]
    seconds = []
    for place, (work_ms, weights_mb, out_mb) in enumerate(operators):
        in_mb = operators[place - 1][2] if place else out_mb
        # Replicas sum gradients once a step; ranks cut by columns sum the input's gradient, by rows the output.
        sums = (weights_mb / num_microbatches, in_mb, out_mb)
        seconds.append({g: [1e-3 * work_ms / g + 2 * _travels(each, g) for each in sums] for g in sizes})
    edges = [(at - 1, at) for at in range(1, len(operators))] + [(at - 2, at) for at in skips]
    between = {
        (a, b): {g: [[_relaid(operators[a][2], g, _OUT[one], _IN[two]) for two in range(3)] for one in range(3)]
                 for g in sizes}
        for a, b in edges
    }  # fmt: skip
    return Graph(seconds, between, num_gpus, num_microbatches)


def _travels(megabytes: float, gpus: int) -> float:
    return megabytes * (gpus - 1) / gpus / 1e5


def _relaid(megabytes: float, gpus: int, wrote: str, reads: str) -> float:
    """Return what bringing an activation to where the next operator reads it takes, forward and backward."""
    if wrote == reads:
        return 0.0
    one_way = _travels(megabytes, gpus)  # all-gather in one direction; the other takes a slice
    return one_way if "whole" in (wrote, reads) else 2 * one_way / gpus


def stage_seconds(graph: Graph, first: int, stage: Stage) -> float:
    """Return what a stage that begins at this operator takes for a microbatch."""
    last = first + len(stage.ways) - 1
    took = [graph.seconds[first + at][stage.gpus][way] for at, way in enumerate(stage.ways)]
    took += [
        table[stage.gpus][stage.ways[a - first]][stage.ways[b - first]]
        for (a, b), table in graph.between.items()
        if first <= a and b <= last
    ]
    return sum(took)


def step_seconds(graph: Graph, stages: Sequence[Stage]) -> float:
    """Return what a step takes: each stage once, and the slowest for every microbatch but one."""
    took, first = [], 0
    for stage in stages:
        took.append(stage_seconds(graph, first, stage))
        first += len(stage.ways)
    return sum(took) + (graph.num_microbatches - 1) * max(took)
