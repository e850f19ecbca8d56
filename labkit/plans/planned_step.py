"""What a planner is asked and what it answers: a job with its machines, and one way to split its step over them.

`labkit.planned_jobs` plays a plan on virtual ranks, which says how long its step takes.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from labkit.plans import hybrid_step
from labkit.plans.hybrid_step import MeshPlan, link_seconds, ring_seconds

STATE, SHARDED, KEPT, INPUT, LOGITS = 6, 12, 34, 2, 6
"""Bytes: of a parameter (2 in bfloat16, 4 of its gradient); of its optimizer, which replicas share; of a layer's
activations for each number of its input (Korthikanti and others, 2022); of that input alone; of a logit."""


@dataclass(frozen=True)
class Job(hybrid_step.Job):
    """What is trained, and on what.

    Attributes:
        vocabulary: Tokens that embedding and head know.
        memory_bytes_s: Bytes a second that an operator reads and writes.
        launch_s: The least time of an operator.
    """

    vocabulary: int
    memory_bytes_s: float
    launch_s: float

    @property
    def end_params(self) -> int:
        """Parameters of the embedding, on the first stage, and as many of the head, on the last."""
        return self.vocabulary * self.width


def job_of(
    width: int, num_layers: int, num_gpus: int, batch: int, *, num_tokens: int = 2048, vocabulary: int = 65_536,
    memory_gb: float = 80,
) -> Job:  # fmt: skip
    """Return the job of a GPT on nodes of eight H100s, each with a port of 400 Gbit/s."""
    return Job(
        num_layers=num_layers, width=width, layer_params=12 * width**2, num_tokens=num_tokens, batch=batch,
        num_gpus=num_gpus, gpus_per_node=8, flops=791.6e12, peak_flops=989.5e12, memory_bytes=memory_gb * 1e9,
        link_bytes_s=370e9, nic_bytes_s=48e9, link_s=3e-6, nic_s=14e-6, vocabulary=vocabulary, memory_bytes_s=2.91e12,
        launch_s=4e-6,
    )  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """One way to split a step. Ranks lie on the axes in the order pipeline, data, tensor: tensor ranks are neighbours.

    Attributes:
        data: Replicas; they share the optimizer's state.
        pipeline: Stages, with as many layers each.
        tensor: Ranks that share each layer.
        microbatch: Sequences that go through a stage together.
        recompute: Whether layers keep only their input and run forward again in backward.
    """

    data: int
    pipeline: int
    tensor: int
    microbatch: int = 1
    recompute: bool = False

    def num_microbatches(self, job: Job) -> int:
        """Return how many microbatches each replica has in a step."""
        return job.batch // self.data // self.microbatch

    def mesh(self, job: Job) -> MeshPlan:
        """Return the plan as lesson 14 writes it."""
        sizes = (("pipeline", self.pipeline), ("data", self.data), ("tensor", self.tensor))
        again = (job.num_layers // self.pipeline,) * self.pipeline if self.recompute else ()
        return MeshPlan(sizes, self.microbatch, recompute=again)

    def __str__(self) -> str:
        text = f"data {self.data}, pipeline {self.pipeline}, tensor {self.tensor}, microbatch {self.microbatch}"
        return text + (", recompute" if self.recompute else "")


def scatter_seconds(job: Job, plan: Plan, axis: str, num_bytes: float) -> float:
    """Return how long a reduce-scatter or an all-gather of so many bytes along an axis takes; an all-reduce is both."""
    return ring_seconds(job, plan.mesh(job), axis, num_bytes)


def hop_seconds(job: Job, plan: Plan) -> float:
    """Return how long a microbatch takes from a stage to the next: the mean of all hops, 0.0 with a single stage.

    Where several stages share a node, only the hops that leave it take the network.
    """
    if plan.pipeline == 1:
        return 0.0
    num_bytes = plan.microbatch * job.activation_bytes
    stages_a_node = max(1, job.gpus_per_node // (plan.data * plan.tensor))
    leave = (plan.pipeline - 1) // stages_a_node
    stay = plan.pipeline - 1 - leave
    seconds = leave * link_seconds(job, num_bytes, inside=False) + stay * link_seconds(job, num_bytes, inside=True)
    return seconds / (plan.pipeline - 1)


def every_plan(job: Job, microbatches: Sequence[int] = (1, 2, 4)) -> list[Plan]:
    """Return every plan that divides the job, tensor ranks within a node; memory is not looked at."""
    found = []
    for tensor in _divisors(min(job.num_gpus, job.gpus_per_node)):
        for pipeline in _divisors(job.num_gpus // tensor):
            data = job.num_gpus // tensor // pipeline
            if job.num_layers % pipeline:
                continue
            for microbatch in microbatches:
                if job.batch % (data * microbatch) == 0:
                    found += [Plan(data, pipeline, tensor, microbatch, again) for again in (False, True)]
    return found


def fault(job: Job, plan: Plan) -> str:
    """Return why this is no plan for the job, or ""; memory is not looked at."""
    sizes = (plan.data, plan.pipeline, plan.tensor)
    if min(*sizes, plan.microbatch) < 1 or math.prod(sizes) != job.num_gpus:
        return f"{' x '.join(map(str, sizes))} ranks are not the {job.num_gpus} GPUs"
    if plan.tensor > job.gpus_per_node:
        return f"{plan.tensor} tensor ranks do not fit into a node of {job.gpus_per_node}"
    if job.num_layers % plan.pipeline:
        return f"{plan.pipeline} stages do not divide {job.num_layers} layers"
    if job.batch % (plan.data * plan.microbatch):
        return f"microbatches of {plan.microbatch} on {plan.data} replicas do not divide a batch of {job.batch}"
    return ""


def published() -> list[tuple[Plan, float]]:
    """Return the plans and seconds of published runs: nanotron, 8 B on 16 H100s, 256 sequences of 4096 tokens.

    Where replicas did not share the optimizer's state, the run is here as well. Source: benchmarks of the Ultra-Scale
    Playbook (Hugging Face 2025, Apache-2.0).
    """
    with Path(__file__).with_name("nanotron_8b.csv").open(encoding="utf-8") as file:
        rows = [[int(each) for each in row] for row in list(csv.reader(file))[1:]]
    return [
        (Plan(data, pipeline, tensor, microbatch), 256 * 4096 / tokens_per_s)
        for data, pipeline, tensor, microbatch, _, tokens_per_s in rows
    ]


PUBLISHED_JOB = job_of(4096, 40, 16, 256, num_tokens=4096, vocabulary=131_072)
"""A GPT with as many parameters as their model, whose 32 layers are a fifth larger."""


def _divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]
