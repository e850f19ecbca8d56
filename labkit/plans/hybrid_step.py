"""A training step on a mesh as a plan: the order and sizes of its axes, what a step takes, what a GPU holds.

Times are those of a model: products at the rate a GPU reaches; a ring's bytes over the slowest link that it passes,
which it shares with the groups beside it. tests/plans holds the model against runs on virtual ranks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

AXES = ("data", "pipeline", "tensor")
_HALF = 2
_STATE, _SHARDED = 6, 12
"""Bytes of a parameter on a GPU: 2 in bfloat16 and 4 of its gradient; and 12 that the ranks along "data" share."""
_KEPT = 34
"""Bytes of activations that a layer keeps for each number of its input (Korthikanti and others, 2022)."""


@dataclass(frozen=True)
class Job:
    """What is trained, and on what.

    Attributes:
        num_layers: How many layers, all alike.
        width: Numbers of an activation.
        layer_params: Parameters of a layer.
        num_tokens: Tokens of a sequence.
        batch: Sequences of a step.
        num_gpus: All of them are used.
        gpus_per_node: Of one machine.
        flops: Operations a second that a GPU reaches.
        peak_flops: What its datasheet says.
        memory_bytes: What it holds.
        link_bytes_s: Bytes a second from a GPU to another one in its node.
        nic_bytes_s: Bytes a second from a GPU into the network; each has a port, and a ring uses those of its node.
        link_s: The least time of a message inside a node.
        nic_s: The least time of a message between nodes.
    """

    num_layers: int
    width: int
    layer_params: int
    num_tokens: int
    batch: int
    num_gpus: int
    gpus_per_node: int
    flops: float
    peak_flops: float
    memory_bytes: float
    link_bytes_s: float
    nic_bytes_s: float
    link_s: float
    nic_s: float

    @property
    def activation_bytes(self) -> int:
        """Bytes of one sequence between two layers, bfloat16."""
        return _HALF * self.num_tokens * self.width


SEVENTY_BILLION = Job(
    num_layers=80, width=8192, layer_params=855_638_016, num_tokens=4096, batch=512, num_gpus=512, gpus_per_node=8,
    flops=794e12, peak_flops=989e12, memory_bytes=80e9, link_bytes_s=360e9, nic_bytes_s=48e9, link_s=3e-6, nic_s=14e-6,
)  # fmt: skip
"""Layers of Llama 3 70B on 64 nodes of eight H100s; each GPU has a port of 400 Gbit/s."""

A100 = {"flops": 250e12, "peak_flops": 312e12, "link_bytes_s": 230e9}
"""Fields of a job on A100s in nodes with NVLink."""


def job_of(width: int, num_layers: int, num_gpus: int, batch: int, **more: Any) -> Job:
    """Return a job of a GPT of this width, 12 width^2 parameters a layer, 2048 tokens a sequence.

    Args:
        width: Numbers of an activation.
        num_layers: How many layers.
        num_gpus: How many GPUs.
        batch: Sequences of a step.
        **more: Other fields of Job; what is not said is as in SEVENTY_BILLION.
    """
    return replace(
        SEVENTY_BILLION, width=width, layer_params=12 * width**2, num_tokens=2048, num_layers=num_layers,
        num_gpus=num_gpus, batch=batch, **more,
    )  # fmt: skip


JOBS = {
    "70 B on 512 H100s, 8 in a node": SEVENTY_BILLION,
    "13 B on 64 A100s of 40 GB, 100 Gbit/s for a whole node": job_of(
        5120, 40, 64, 512, memory_bytes=40e9, nic_bytes_s=12e9 / 8, **A100
    ),
    "30 B on 64 A100s, 4 in a node, over PCIe": job_of(
        7168, 48, 64, 256, gpus_per_node=4, nic_bytes_s=12e9, **{**A100, "link_bytes_s": 22e9}
    ),
}
"""The jobs of the lesson's design, by what they are."""


@dataclass(frozen=True)
class MeshPlan:
    """How a step is split.

    Attributes:
        sizes: (axis, ranks along it), the outermost axis first; ranks are neighbours along the last one.
        microbatch: Sequences that go through a stage together.
    """

    sizes: tuple[tuple[str, int], ...]
    microbatch: int = 1

    def size(self, axis: str) -> int:
        """Return how many ranks an axis has."""
        return dict(self.sizes).get(axis, 1)

    def apart(self, axis: str) -> int:
        """Return how far apart in rank neighbours along an axis are."""
        names = [name for name, _ in self.sizes]
        return math.prod(size for _, size in self.sizes[names.index(axis) + 1 :])


@dataclass(frozen=True)
class Cost:
    """What a step costs.

    Attributes:
        seconds: Of a step, the sum of the next five.
        compute: Products of this GPU's layers.
        tensor: All-reduces of activations.
        bubble: What a stage waits while the pipeline fills and drains.
        exchange: Messages between stages that nothing hides.
        gradients: Gradients to the owners of their shards, and parameters back.
        peak_bytes: The most that a GPU holds.
        of_peak: The model's arithmetic over what the GPUs could do by their datasheet.
    """

    seconds: float
    compute: float
    tensor: float
    bubble: float
    exchange: float
    gradients: float
    peak_bytes: float
    of_peak: float


def fault(job: Job, plan: MeshPlan) -> str:
    """Return why this is no plan for the job, or ""; memory is not looked at."""
    names = [name for name, _ in plan.sizes]
    if sorted(names) != sorted(AXES):
        return f"the axes are {', '.join(names) or 'none'}; they are data, pipeline and tensor, each once"
    if (ranks := math.prod(size for _, size in plan.sizes)) != job.num_gpus or min(s for _, s in plan.sizes) < 1:
        return f"the sizes make {ranks} ranks for {job.num_gpus} GPUs"
    if job.num_layers % plan.size("pipeline"):
        return f"{plan.size('pipeline')} stages do not divide {job.num_layers} layers"
    if plan.microbatch < 1 or job.batch % (plan.microbatch * plan.size("data")):
        return f"microbatches of {plan.microbatch} on {plan.size('data')} replicas do not divide a batch of {job.batch}"
    return ""


def cost(job: Job, plan: MeshPlan) -> Cost:
    """Return what a step costs by this plan, with 1F1B and the optimizer's state sharded over "data".

    Raises:
        ValueError: If it is no plan for the job.
    """
    if problem := fault(job, plan):
        raise ValueError(problem)
    tensor, stages, replicas = (plan.size(axis) for axis in ("tensor", "pipeline", "data"))
    layers, num_microbatches = job.num_layers // stages, job.batch // replicas // plan.microbatch
    sequences = plan.microbatch * job.num_tokens
    product = layers * 6 * job.layer_params * sequences / tensor / job.flops
    activation = plan.microbatch * job.activation_bytes
    reduce = layers * 4 * 2 * ring_seconds(job, plan, "tensor", activation)
    hop = message_seconds(job, plan, activation) if stages > 1 else 0.0
    of_stage = layers * job.layer_params / tensor
    gradients = ring_seconds(job, plan, "data", 4 * of_stage) + ring_seconds(job, plan, "data", _HALF * of_stage)
    compute, all_reduce = num_microbatches * product, num_microbatches * reduce
    bubble, exchange = (stages - 1) * (product + reduce), 2 * (stages - 1) * hop
    seconds = compute + all_reduce + bubble + exchange + gradients
    needed = 6 * job.num_layers * job.layer_params * job.batch * job.num_tokens
    of_peak = needed / (seconds * job.num_gpus * job.peak_flops)
    return Cost(seconds, compute, all_reduce, bubble, exchange, gradients, peak_bytes(job, plan), of_peak)


def peak_bytes(job: Job, plan: MeshPlan) -> float:
    """Return the most bytes a GPU holds: state, and what the first stage keeps of microbatches in flight."""
    tensor, stages, replicas = (plan.size(axis) for axis in ("tensor", "pipeline", "data"))
    layers, num_microbatches = job.num_layers // stages, job.batch // replicas // plan.microbatch
    state = (_STATE + _SHARDED / replicas) * layers * job.layer_params / tensor
    kept = layers * _KEPT / 2 * plan.microbatch * job.activation_bytes / tensor
    return state + min(stages, num_microbatches) * kept


def ring_seconds(job: Job, plan: MeshPlan, axis: str, num_bytes: float) -> float:
    """Return how long a reduce-scatter or an all-gather of so many bytes along an axis takes; an all-reduce is two."""
    size = plan.size(axis)
    if size == 1:
        return 0.0
    num_nodes, rate = _passes(job, plan, axis)
    latency = (num_nodes - 1) * job.nic_s + (size - num_nodes) * job.link_s
    return latency + (size - 1) * num_bytes / size / rate


def message_seconds(job: Job, plan: MeshPlan, num_bytes: float) -> float:
    """Return how long a message to the next stage takes."""
    inside = plan.size("pipeline") * plan.apart("pipeline") <= job.gpus_per_node
    rate, latency = (job.link_bytes_s, job.link_s) if inside else (job.nic_bytes_s, job.nic_s)
    return latency + num_bytes / rate


def _passes(job: Job, plan: MeshPlan, axis: str) -> tuple[int, float]:
    """Return how many nodes a ring along an axis passes, and the rate that it gets.

    A ring that leaves a node shares the node's ports with all rings that leave it: as many as the node has GPUs for
    each that this ring has there.
    """
    size, apart = plan.size(axis), plan.apart(axis)
    if size * apart <= job.gpus_per_node:
        return 1, job.link_bytes_s
    members = max(1, job.gpus_per_node // apart)
    return math.ceil(size / members), min(job.link_bytes_s, job.nic_bytes_s * members)


def every_plan(job: Job, orders: Sequence[Sequence[str]], microbatches: Sequence[int] = (1, 2, 4, 8)) -> list[MeshPlan]:
    """Return every plan of a job in these orders that divides it and fits into memory."""
    found = []
    divisors = [each for each in range(1, job.num_gpus + 1) if job.num_gpus % each == 0]
    for tensor in divisors:
        for stages in (each for each in divisors if job.num_gpus % (tensor * each) == 0):
            sizes = {"tensor": tensor, "pipeline": stages, "data": job.num_gpus // tensor // stages}
            for order in orders:
                for microbatch in microbatches:
                    plan = MeshPlan(tuple((axis, sizes[axis]) for axis in order), microbatch)
                    if not fault(job, plan) and peak_bytes(job, plan) <= job.memory_bytes:
                        found.append(plan)
    return found
