"""The model of a step on a mesh is held against virtual ranks that play the step."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.distributed as dist

import labkit
from labkit.exercises.hybrid_parallelism.on_ranks import Mesh
from labkit.plans.hybrid_step import SEVENTY_BILLION, Job, MeshPlan, cost, every_plan, fault, peak_bytes

SMALL = replace(
    SEVENTY_BILLION, num_layers=4, width=4096, layer_params=12 * 4096**2, num_tokens=2048, batch=16, num_gpus=8,
    gpus_per_node=4,
)  # fmt: skip


def played(job: Job, plan: MeshPlan) -> float:
    """Return the seconds of a step as virtual ranks play it, in GPipe's order."""

    def step() -> None:
        mesh = Mesh(dict(plan.sizes))
        tensor, stages, replicas = (plan.size(axis) for axis in ("tensor", "pipeline", "data"))
        layers, stage = job.num_layers // stages, mesh.place["pipeline"]
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
                for _ in range(layers):
                    for _ in range(times):
                        x @ up
                    for _ in range(2):
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


def test_every_plan_fits_and_state_is_counted_in_bytes() -> None:
    plans = every_plan(SEVENTY_BILLION, [("data", "pipeline", "tensor")])
    assert plans
    assert all(peak_bytes(SEVENTY_BILLION, each) <= SEVENTY_BILLION.memory_bytes for each in plans)
    alone = replace(SEVENTY_BILLION, num_gpus=1, batch=1, num_layers=1)
    plan = MeshPlan((("data", 1), ("pipeline", 1), ("tensor", 1)))
    kept = 34 * alone.num_tokens * alone.width
    assert peak_bytes(alone, plan) == pytest.approx(18 * alone.layer_params + kept)
