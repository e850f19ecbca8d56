"""The model of a step on a mesh is held against virtual ranks that play the step."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist

import labkit
from labkit.exercises.hybrid_parallelism.best_plans import adapted, as_it_is, equal_stages, fastest, fastest_dealt
from labkit.exercises.hybrid_parallelism.on_ranks import Mesh
from labkit.plans.hybrid_step import JOBS, SEVENTY_BILLION, Job, MeshPlan, cost, every_plan, fault, stage_bytes

SMALL = replace(
    SEVENTY_BILLION, num_layers=4, width=4096, layer_params=12 * 4096**2, num_tokens=2048, batch=16, num_gpus=8,
    gpus_per_node=4,
)  # fmt: skip


def played(job: Job, plan: MeshPlan) -> float:
    """Return the seconds of a step as virtual ranks play it, in GPipe's order."""

    def step() -> None:
        mesh = Mesh(dict(plan.sizes))
        tensor, stages, replicas = (plan.size(axis) for axis in ("tensor", "pipeline", "data"))
        stage = mesh.place["pipeline"]
        layers, again = plan.of_stages(job)[stage]
        with torch.device("meta"):
            x = torch.empty(plan.microbatch * job.num_tokens, job.width, dtype=torch.bfloat16)
            up = torch.empty(job.width, 12 * job.width // tensor, dtype=torch.bfloat16)
            gradient = torch.empty(layers * job.layer_params // tensor)
        dist.barrier()
        count = job.batch // replicas // plan.microbatch
        pipeline = mesh.groups["pipeline"]
        for times, come, go in ((1, stage - 1, stage + 1), (2, stage + 1, stage - 1)):
            coming, left = [], []
            if 0 <= come < stages:
                coming = [dist.irecv(torch.empty_like(x), group=pipeline, group_src=come) for _ in range(count)]
            for _ in range(count):
                if coming:
                    coming.pop(0).wait()
                for layer in range(layers):
                    repeats = times == 2 and layer < again
                    for _ in range(times + repeats):
                        x @ up
                    for _ in range(4 if repeats else 2):
                        if tensor > 1:
                            dist.all_reduce(x, group=mesh.groups["tensor"])
                if 0 <= go < stages:
                    left.append(dist.isend(x, group=pipeline, group_dst=go))
            for work in left:
                work.wait()
        if replicas > 1:
            parts = list(gradient.chunk(replicas))
            dist.reduce_scatter(torch.empty_like(parts[0]), parts, group=mesh.groups["data"])
            halves = [each.bfloat16() for each in parts]
            dist.all_gather(halves, torch.empty_like(halves[0]), group=mesh.groups["data"])

    world = labkit.virtual(job.num_gpus, gpus_per_node=job.gpus_per_node, algorithm="ring")
    timeline = labkit.run(step, on=world, echo=False).timeline
    assert timeline is not None
    return timeline.makespan_ns / 1e9


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "sizes",
    [
        (("data", 2), ("pipeline", 1), ("tensor", 4)),
        pytest.param((("pipeline", 4), ("data", 1), ("tensor", 2)), marks=pytest.mark.long),
        pytest.param((("pipeline", 2), ("tensor", 4), ("data", 1)), marks=pytest.mark.long),
        (("tensor", 8), ("data", 1), ("pipeline", 1)),
        pytest.param((("data", 8), ("pipeline", 1), ("tensor", 1)), marks=pytest.mark.long),
    ],
)
def test_the_model_is_within_five_percent_of_virtual_ranks(sizes: tuple[tuple[str, int], ...]) -> None:
    plan = MeshPlan(sizes)
    assert cost(SMALL, plan).seconds == pytest.approx(played(SMALL, plan), rel=0.05)


@pytest.mark.parametrize(
    "stages",
    [
        {"recompute": (2, 0)},
        pytest.param({"layers": (1, 3), "recompute": (1, 0)}, marks=pytest.mark.long),
    ],
)
def test_the_model_is_within_five_percent_where_stages_differ(stages: dict[str, tuple[int, ...]]) -> None:
    plan = MeshPlan((("pipeline", 2), ("data", 2), ("tensor", 2)), **stages)
    assert cost(SMALL, plan).seconds == pytest.approx(played(SMALL, plan), rel=0.05)


@pytest.mark.long
def test_where_rings_of_a_node_take_turns_the_model_lets_them_all_send_at_once() -> None:
    plan = MeshPlan((("tensor", 2), ("data", 2), ("pipeline", 2)))
    assert 1.0 < cost(SMALL, plan).seconds / played(SMALL, plan) < 1.5


def test_what_is_no_plan_is_said_in_words() -> None:
    job = SEVENTY_BILLION
    eight = (("data", 8), ("pipeline", 8), ("tensor", 8))
    assert fault(job, MeshPlan(eight)) == ""
    assert (
        fault(job, MeshPlan(eight[:2])) == "the axes are data, pipeline; they are data, pipeline and tensor, each once"
    )
    assert "256 ranks for 512" in fault(job, MeshPlan((*eight[:2], ("tensor", 4))))
    assert "64 stages do not divide 80 layers" in fault(job, MeshPlan((("data", 1), ("pipeline", 64), ("tensor", 8))))
    assert "do not divide a batch of 512" in fault(job, MeshPlan(eight, 3))
    with pytest.raises(ValueError, match="64 stages"):
        cost(job, MeshPlan((("data", 1), ("pipeline", 64), ("tensor", 8))))


def test_stages_that_are_no_plan_are_said_in_words() -> None:
    mesh = MeshPlan((("pipeline", 2), ("data", 2), ("tensor", 2)))
    assert fault(SMALL, replace(mesh, recompute=(1,))) == "recompute names 1 stages of 2"
    assert "the stages have 1 + 2 layers, and 4 are to be dealt out" in fault(SMALL, replace(mesh, layers=(1, 2)))
    assert "stage 1 has 2 layers and computes 3 of them again" in fault(SMALL, replace(mesh, recompute=(0, 3)))
    assert fault(SMALL, replace(mesh, layers=(1, 3), recompute=(0, 3))) == ""


def test_what_a_stage_holds_is_counted_in_bytes() -> None:
    alone = replace(SEVENTY_BILLION, num_gpus=1, batch=1, num_layers=2)
    plan = MeshPlan((("data", 1), ("pipeline", 1), ("tensor", 1)))
    numbers = alone.num_tokens * alone.width
    assert stage_bytes(alone, plan) == pytest.approx([18 * 2 * alone.layer_params + 34 * 2 * numbers])
    again = stage_bytes(alone, replace(plan, recompute=(2,)))
    assert again == pytest.approx([18 * 2 * alone.layer_params + (2 * 2 + 34) * numbers])
    two = replace(alone, num_gpus=2, batch=8)
    first, last = stage_bytes(two, MeshPlan((("data", 1), ("pipeline", 2), ("tensor", 1))))
    assert first - last == pytest.approx(34 * numbers), (
        "two microbatches are in flight on the first stage, one on the last"
    )


@pytest.mark.in_turn
def test_memory_forbids_the_fastest_plan_of_two_jobs_and_stages_that_are_alike_do_not_reach_the_reference() -> None:
    bound = 0
    for job in JOBS.values():
        free = min(cost(job, each).seconds for each in every_plan(job))
        naive, even, paper = (cost(job, fastest(job, made)).seconds for made in (as_it_is, equal_stages, adapted))
        assert free == naive == paper or free < paper < even < naive
        bound += free < naive
    assert bound == 2


def _every_way(job: Job, plan: MeshPlan) -> list[MeshPlan]:
    """Return the plan with every number of layers and of those computed again."""
    stages, found = plan.size("pipeline"), []
    for layers in itertools.product(range(1, job.num_layers + 1), repeat=stages):
        if sum(layers) == job.num_layers:
            for again in itertools.product(*(range(each + 1) for each in layers)):
                found.append(replace(plan, layers=layers, recompute=again))
    return found


FEW_LAYERS = replace(
    SMALL, width=1024, layer_params=12 * 1024**2, num_tokens=8192, num_layers=5, num_gpus=4, gpus_per_node=2, batch=8,
    link_bytes_s=5e9, nic_bytes_s=2e9,
)  # fmt: skip


@pytest.mark.parametrize(
    "memory_gb", [1.0, pytest.param(0.8, marks=pytest.mark.long), pytest.param(1.4, marks=pytest.mark.long)]
)
def test_no_plan_at_all_is_faster_than_the_best_known(memory_gb: float) -> None:
    job = replace(FEW_LAYERS, memory_bytes=memory_gb * 1e9)
    best = fastest_dealt(job, fastest(job, adapted))
    found = math.inf
    divisors = [(t, p, 4 // t // p) for t in (1, 2, 4) for p in (1, 2, 4) if 4 % (t * p) == 0]
    for tensor, stages, data in divisors:
        sizes = {"tensor": tensor, "pipeline": stages, "data": data}
        for order, microbatch in itertools.product(itertools.permutations(sizes), (1, 2, 4, 8)):
            plan = MeshPlan(tuple((axis, sizes[axis]) for axis in order), microbatch)
            if job.batch % (microbatch * data) == 0:
                costs = (cost(job, each) for each in _every_way(job, plan))
                found = min([found, *(each.seconds for each in costs if each.peak_bytes <= job.memory_bytes)])
    assert cost(job, best).seconds == pytest.approx(found, rel=1e-9)
    assert best.layers
    assert max(best.recompute), "memory decides"


@pytest.mark.long
def test_dealing_out_layers_is_faster_than_the_reference_in_both_jobs_that_memory_binds() -> None:
    gains = []
    for job in JOBS.values():
        paper = fastest(job, adapted)
        best = fastest_dealt(job, paper)
        assert max(stage_bytes(job, best)) <= job.memory_bytes
        gains.append(cost(job, best).seconds < cost(job, paper).seconds)
    assert gains == [False, True, True]
