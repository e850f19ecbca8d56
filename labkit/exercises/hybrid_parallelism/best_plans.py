"""The best plans of a job that fit: which layers a stage must compute again, and how layers are best dealt out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import permutations, product

from labkit.plans.hybrid_step import AXES, Job, MeshPlan, cost, every_plan, layer_seconds, stage_bytes

Fewest = list[list[int]]
"""For each stage and number of layers, how many of these it must compute again; numbers that never fit are left out."""


def as_it_is(job: Job, plan: MeshPlan) -> MeshPlan | None:
    """Return the plan if each GPU has room for what it holds."""
    return plan if max(stage_bytes(job, plan)) <= job.memory_bytes else None


def equal_stages(job: Job, plan: MeshPlan) -> MeshPlan | None:
    """Return the plan in which every stage computes as many layers again as the fullest one must."""
    stages = plan.size("pipeline")
    tries = (replace(plan, recompute=(again,) * stages) for again in range(job.num_layers // stages + 1))
    return next((each for each in tries if as_it_is(job, each)), None)


def adapted(job: Job, plan: MeshPlan) -> MeshPlan | None:
    """Return the plan in which each stage computes as few of its layers again as it must."""
    stages = plan.size("pipeline")
    each = job.num_layers // stages
    fewest = fewest_again(job, plan, each)
    return replace(plan, recompute=tuple(row[each] for row in fewest)) if min(map(len, fewest)) > each else None


def fastest(job: Job, made: Callable[[Job, MeshPlan], MeshPlan | None]) -> MeshPlan:
    """Return the fastest plan that comes of the plans whose stages are alike."""
    seconds, best = math.inf, None
    for plan in every_plan(job):
        if cost(job, plan).seconds < seconds and (found := made(job, plan)) and cost(job, found).seconds < seconds:
            seconds, best = cost(job, found).seconds, found
    assert best is not None, "no plan of this job fits"
    return best


def fastest_dealt(job: Job, known: MeshPlan) -> MeshPlan:
    """Return the fastest plan of all, whatever layers its stages have; one at least is known."""
    best = known
    for plan in _every_mesh(job):
        best = dealt(job, plan, cost(job, best).seconds) or best
    return best


def dealt(job: Job, plan: MeshPlan, below: float) -> MeshPlan | None:
    """Return the fastest plan on this mesh, whatever layers its stages have; None where none is faster than `below`.

    A step takes its slowest stage for all but one microbatch, every stage once, and the gradients of the stage with the
    most layers. So for each limit on both, the layers are dealt out such that as few as can be are computed again.
    """
    stages, microbatches = plan.size("pipeline"), job.batch // plan.size("data") // plan.microbatch
    once, again = _times(job, plan)
    best, every = None, None
    for most in range(-(-job.num_layers // stages), job.num_layers - stages + 2):
        rest = _rest(job, plan, most)
        least = job.num_layers * once + rest
        if least + (microbatches - 1) * once * job.num_layers / stages >= below:
            break
        every = every or fewest_again(job, plan, job.num_layers - stages + 1)
        fewest = [row[: most + 1] for row in every]
        times = [[_round(n * once + r * again) for n, r in enumerate(row)] for row in fewest]
        for limit in sorted({each for row in times for each in row}):
            if least + (microbatches - 1) * limit >= below:
                break
            allowed = [
                [r if each <= limit else None for r, each in zip(*rows, strict=True)]
                for rows in zip(fewest, times, strict=True)
            ]
            if stages * limit < 0.999999 * job.num_layers * once or not (layers := _dealt_out(allowed, job.num_layers)):
                continue
            found = replace(
                plan, layers=tuple(layers), recompute=tuple(row[n] for row, n in zip(fewest, layers, strict=True))
            )
            if (seconds := cost(job, found).seconds) < below:
                below, best = seconds, found
    return best


def fewest_again(job: Job, plan: MeshPlan, most: int) -> Fewest:
    """Return, stage by stage, how many of 0, 1, 2, ... `most` layers must be computed again to fit."""
    stages = plan.size("pipeline")
    found: Fewest = [[0] for _ in range(stages)]
    again = [0] * stages
    for layers in range(1, most + 1):
        held = _held(job, plan, layers, again)
        while short := [n for n in range(stages) if held[n] > job.memory_bytes and again[n] < layers]:
            for stage in short:
                again[stage] += 1
            held = _held(job, plan, layers, again)
        for row, bytes_held, repeated in zip(found, held, again, strict=True):
            row += [repeated] if bytes_held <= job.memory_bytes and len(row) == layers else []
        if max(map(len, found)) == layers:
            break
    return found


def _held(job: Job, plan: MeshPlan, layers: int, again: Sequence[int]) -> tuple[float, ...]:
    """Return what each stage would hold with so many layers."""
    return stage_bytes(job, replace(plan, layers=(layers,) * len(again), recompute=tuple(again)))


def _dealt_out(allowed: Sequence[Sequence[int | None]], num_layers: int) -> list[int]:
    """Return how many layers each stage gets, so that fewest are computed again; [] where that cannot be."""
    ways: dict[int, tuple[int, list[int]]] = {0: (0, [])}  # by layers dealt out: (computed again, each stage's)
    for row in allowed:
        after: dict[int, tuple[int, list[int]]] = {}
        for done, (total, dealt_out) in ways.items():
            for layers, again in enumerate(row):
                if layers == 0 or again is None or done + layers > num_layers:
                    continue
                if done + layers not in after or total + again < after[done + layers][0]:
                    after[done + layers] = (total + again, [*dealt_out, layers])
        ways = after
    return ways.get(num_layers, (0, []))[1]


def _every_mesh(job: Job) -> Iterator[MeshPlan]:
    """Yield every mesh and microbatch, also with stages that do not divide the layers."""
    divisors = [each for each in range(1, job.num_gpus + 1) if job.num_gpus % each == 0]
    for tensor, stages in product(divisors, divisors):
        if job.num_gpus % (tensor * stages) or stages > job.num_layers:
            continue
        sizes = {"tensor": tensor, "pipeline": stages, "data": job.num_gpus // tensor // stages}
        for order, microbatch in product(permutations(AXES), (1, 2, 4, 8)):
            if job.batch % (microbatch * sizes["data"]) == 0:
                yield MeshPlan(tuple((axis, sizes[axis]) for axis in order), microbatch)


def _times(job: Job, plan: MeshPlan) -> tuple[float, float]:
    """Return what a layer takes a microbatch, and what it takes to compute it again."""
    products, reduce, again = layer_seconds(job, plan)
    return products + reduce, again


def _rest(job: Job, plan: MeshPlan, most: int) -> float:
    """Return what a step takes besides its stages, where the largest has so many layers."""
    stages = plan.size("pipeline")
    left = job.num_layers - most
    layers = (
        (most, *(left // (stages - 1) + (n < left % (stages - 1)) for n in range(stages - 1))) if stages > 1 else ()
    )
    found = cost(job, replace(plan, layers=layers, recompute=()))
    return found.exchange + found.gradients


def _round(seconds: float) -> float:
    return round(seconds, 12)
