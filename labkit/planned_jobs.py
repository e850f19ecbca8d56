"""A step played on virtual ranks by a plan: products, sums, messages and gradients, and nothing computed twice over.

A layer runs once on every rank, on tensors without values; the step then takes as long for each layer and microbatch.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from labkit.launch.rank import span
from labkit.plans.planned_step import Job, Plan
from labkit.timeline import Timeline
from labkit.timeline.columns import COLUMNS
from labkit.timeline.span import Lane
from labkit.virtual_world import virtual
from labkit.worlds import run


@dataclass(frozen=True)
class Played:
    """What a played step took.

    Attributes:
        seconds: From the first forward to the last parameter gathered.
        layer: What a layer took a microbatch, forward and backward.
        timeline: Of all ranks, the step alone; what a rank computes of microbatch 0 is F0 and B0.
    """

    seconds: float
    layer: tuple[float, float]
    timeline: Timeline

    def __repr__(self) -> str:
        return f"{1e3 * self.seconds:.1f} ms"


def played(job: Job, plan: Plan, *, again: Collection[int] = ()) -> Played:
    """Return what one step takes by this plan on virtual H100s, as many as the job has.

    Args:
        job: What is trained.
        plan: How it is split.
        again: Stages that compute their layers again, whatever the plan says of all.
    """
    world = virtual(job.num_gpus, gpus_per_node=job.gpus_per_node, algorithm="ring")
    done = run(_step, job, plan, tuple(again), on=world, echo=False)
    assert done.timeline is not None
    return Played(max(seconds for seconds, _ in done.results), done.results[0][1], _computing(done.timeline))


def _computing(timeline: Timeline) -> Timeline:
    """Return the step of a record; what stood for computing lies where computing lies, by its microbatch's name."""
    is_barrier = timeline.name == "barrier"
    keep = (timeline.start_ns >= timeline.end_ns[is_barrier].max()) & ~is_barrier
    step = timeline.select(keep)
    named = step.lane == Lane.REGION
    columns: dict[str, Any] = {name: np.array(getattr(step, name)) for name in COLUMNS}
    for row in np.flatnonzero(step.kind == "sleep"):
        around = named & (step.rank == step.rank[row]) & (step.start_ns <= step.start_ns[row])
        around &= step.end_ns >= step.end_ns[row]
        columns["name"][row] = step.name[around][0]
        columns["lane"][row], columns["kind"][row] = Lane.COMPUTE, "compute"
    tables = {name: table for name, table in step.tables.items() if not name.startswith("memory")}
    return Timeline(**columns, tables=tables, num_ranks=step.num_ranks).select(~named)


@dataclass(frozen=True)
class _Places:
    """Where a rank is, and its groups."""

    stage: int
    tensor: dist.ProcessGroup
    data: dist.ProcessGroup
    pipeline: dist.ProcessGroup


def _places(plan: Plan) -> _Places:
    """Return this rank's place; every rank makes every group."""
    rank, groups = dist.get_rank(), {}
    shape = torch.arange(dist.get_world_size()).view(plan.pipeline, plan.data, plan.tensor)
    for name, axis in (("pipeline", 0), ("data", 1), ("tensor", 2)):
        for ranks in shape.movedim(axis, -1).reshape(-1, shape.shape[axis]).tolist():
            group = dist.new_group(ranks)
            if rank in ranks:
                groups[name] = group
    return _Places(rank // (plan.data * plan.tensor), **groups)


def _step(job: Job, plan: Plan, again: tuple[int, ...]) -> tuple[float, tuple[float, float]]:
    at = _places(plan)
    layer = _layer_seconds(job, replace(plan, recompute=plan.recompute or at.stage in again), at.tensor)
    head = _head_seconds(job, plan, at.tensor) if at.stage == plan.pipeline - 1 else (0.0, 0.0)
    dist.barrier()
    begin = time.perf_counter()
    _one_f_one_b(job, plan, at, layer, head)
    return time.perf_counter() - begin, layer


def _meta(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def _layer_seconds(job: Job, plan: Plan, group: dist.ProcessGroup) -> tuple[float, float]:
    """Return what a layer takes forward and backward, recomputation included."""
    rows, h, t = plan.microbatch * job.num_tokens, job.width, plan.tensor
    products = ((h, 3 * h // t), (h // t, h), (h, 4 * h // t), (4 * h // t, h))
    x = _meta(rows, h)

    def sums() -> None:
        for _ in range(2 if t > 1 else 0):  # after attention and after the MLP; in backward before them
            dist.all_reduce(x, group=group)

    def forward() -> None:
        for inner, columns in products:
            _meta(rows, inner) @ _meta(inner, columns)
        sums()

    dist.barrier()
    begin = time.perf_counter()
    forward()
    between = time.perf_counter()
    if plan.recompute:
        forward()
    for inner, columns in products:
        _meta(rows, columns) @ _meta(columns, inner)
        _meta(inner, rows) @ _meta(rows, columns)
    sums()
    return between - begin, time.perf_counter() - between


def _head_seconds(job: Job, plan: Plan, group: dist.ProcessGroup) -> tuple[float, float]:
    rows, columns = plan.microbatch * job.num_tokens, job.vocabulary // plan.tensor
    begin = time.perf_counter()
    _meta(rows, job.width) @ _meta(job.width, columns)
    between = time.perf_counter()
    _meta(rows, columns) @ _meta(columns, job.width)
    _meta(job.width, rows) @ _meta(rows, columns)
    if plan.tensor > 1:
        dist.all_reduce(_meta(rows, job.width), group=group)
    return between - begin, time.perf_counter() - between


def _one_f_one_b(
    job: Job, plan: Plan, at: _Places, layer: tuple[float, float], head: tuple[float, float]
) -> None:  # fmt: skip
    count, stages, layers = plan.num_microbatches(job), plan.pipeline, job.num_layers // plan.pipeline
    x = _meta(plan.microbatch * job.num_tokens, job.width)
    coming = {
        other: [dist.irecv(x, group=at.pipeline, group_src=other) for _ in range(count)]
        for other in (at.stage - 1, at.stage + 1)
        if 0 <= other < stages
    }
    left: list[dist.Work | None] = []
    sums: list[dist.Work | None] = []

    def arrive(other: int) -> None:
        if other in coming:
            coming[other].pop(0).wait()  # type: ignore[union-attr]

    def leave(other: int) -> None:
        if 0 <= other < stages:
            left.append(dist.isend(x, group=at.pipeline, group_dst=other))

    def forward(number: int) -> None:
        arrive(at.stage - 1)
        with span(f"F{number}"):
            time.sleep(layers * layer[0] + head[0])
        leave(at.stage + 1)

    def backward(number: int) -> None:
        arrive(at.stage + 1)
        last = number == count - 1 and plan.data > 1
        with span(f"B{number}"):
            if not last:
                time.sleep(head[1] + layers * layer[1])
            else:
                time.sleep(head[1])
                sums.append(_scattered(job.end_params if at.stage == stages - 1 else 0, plan, at))
                for _ in range(layers):
                    time.sleep(layer[1])
                    sums.append(_scattered(job.layer_params, plan, at))
        leave(at.stage - 1)

    warmup = min(stages - at.stage - 1, count)
    for number in range(warmup):
        forward(number)
    for number in range(warmup, count):
        forward(number)
        backward(number - warmup)
    for number in range(count - warmup, count):
        backward(number)
    if plan.data > 1:
        ends = (int(at.stage == 0) + int(at.stage == stages - 1)) * job.end_params
        sums.append(_scattered(job.end_params if at.stage == 0 else 0, plan, at))
        for work in filter(None, sums):
            work.wait()
        mine = _meta((layers * job.layer_params + ends) // plan.tensor // plan.data)
        with span("gather"):
            dist.all_gather([mine] * plan.data, mine, group=at.data)
    for work in filter(None, left):
        work.wait()


def _scattered(params: int, plan: Plan, at: _Places) -> dist.Work | None:
    if not params:
        return None
    mine = _meta(params // plan.tensor // plan.data, dtype=torch.float32)
    work: dist.Work | None = dist.reduce_scatter(mine, [mine] * plan.data, group=at.data, async_op=True)
    return work
