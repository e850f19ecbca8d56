"""A training step on a mesh as a plan: the order and sizes of its axes, what a step takes, what a GPU holds.

Times are those of a model: products at the rate a GPU reaches; a ring's bytes over the slowest link that it passes,
which it shares with the groups beside it. tests/plans holds the model against runs on virtual ranks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product
from typing import Any

AXES = ("data", "pipeline", "tensor")
_HALF = 2
_STATE, _SHARDED = 6, 12
"""Bytes of a parameter on a GPU: 2 in bfloat16 and 4 of its gradient; and 12 that the ranks along "data" share."""
_KEPT = 34
"""Bytes of activations that a layer keeps for each number of its input (Korthikanti and others, 2022)."""
_INPUT = 2
"""Bytes of each number of its input, which is all that a layer keeps that is computed again."""


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
A100_PCIE = {**A100, "link_bytes_s": 22e9, "memory_bytes": 40e9}
"""Fields of a job on A100s of 40 GB without it."""
RTX_4090 = {"flops": 130e12, "peak_flops": 165e12, "link_bytes_s": 22e9, "memory_bytes": 24e9}
"""Fields of a job on RTX 4090s."""


def job_of(width: int, num_layers: int, num_gpus: int, batch: int, **more: Any) -> Job:
    """Return a job of a GPT of this width, 12 width^2 parameters a layer; of 2048 tokens a sequence, if not said.

    Args:
        width: Numbers of an activation.
        num_layers: How many layers.
        num_gpus: How many GPUs.
        batch: Sequences of a step.
        **more: Other fields of Job; what is not said is as in SEVENTY_BILLION.
    """
    more = {"num_tokens": 2048, **more}
    return replace(
        SEVENTY_BILLION, width=width, layer_params=12 * width**2, num_layers=num_layers,
        num_gpus=num_gpus, batch=batch, **more,
    )  # fmt: skip


JOBS = {
    "70 B on 512 H100s, 8 in a node": SEVENTY_BILLION,
    "7 B on 16 RTX 4090s, 24 GB each, over PCIe": job_of(
        4096, 32, 16, 128, num_tokens=4096, nic_bytes_s=1.5e9, **RTX_4090
    ),
    "36 B on 64 A100s, 40 GB each, 4 in a node, over PCIe": job_of(
        6144, 80, 64, 512, gpus_per_node=4, nic_bytes_s=6e9, **A100_PCIE
    ),
}
"""The jobs of the lesson's design, by what they are."""


@dataclass(frozen=True)
class MeshPlan:
    """How a step is split.

    Attributes:
        sizes: (axis, ranks along it), the outermost axis first; ranks are neighbours along the last one.
        microbatch: Sequences that go through a stage together.
        layers: Of each stage, the first one first; () for as many on each.
        recompute: How many layers of each stage keep only their input, and run forward again in backward; () for none.
    """

    sizes: tuple[tuple[str, int], ...]
    microbatch: int = 1
    layers: tuple[int, ...] = ()
    recompute: tuple[int, ...] = ()

    def size(self, axis: str) -> int:
        """Return how many ranks an axis has."""
        return dict(self.sizes).get(axis, 1)

    def apart(self, axis: str) -> int:
        """Return how far apart in rank neighbours along an axis are."""
        names = [name for name, _ in self.sizes]
        return math.prod(size for _, size in self.sizes[names.index(axis) + 1 :])

    def of_stages(self, job: Job) -> list[tuple[int, int]]:
        """Return (layers, those computed again) of each stage."""
        stages = self.size("pipeline")
        layers = self.layers or (job.num_layers // stages,) * stages
        return list(zip(layers, self.recompute or (0,) * stages, strict=True))


@dataclass(frozen=True)
class Cost:
    """What a step costs.

    Attributes:
        seconds: Of a step, the sum of the next six.
        compute: Products of the slowest stage's layers.
        recompute: What it computes again, with its all-reduces.
        tensor: Its other all-reduces of activations.
        bubble: What it waits while the pipeline fills and drains.
        exchange: Messages between stages that nothing hides.
        gradients: Gradients to the owners of their shards, and parameters back.
        stage_bytes: The most that a GPU of each stage holds.
        peak_bytes: The most of these.
        of_peak: The model's arithmetic, each product once, over what the GPUs could do by their datasheet.
    """

    seconds: float
    compute: float
    recompute: float
    tensor: float
    bubble: float
    exchange: float
    gradients: float
    stage_bytes: tuple[float, ...]
    peak_bytes: float
    of_peak: float

    def __repr__(self) -> str:
        names = ("compute", "recompute", "tensor", "bubble", "exchange", "gradients")
        parts = ", ".join(f"{name} {getattr(self, name):.2f}" for name in names)
        return f"{self.seconds:.2f} s ({parts}), at most {self.peak_bytes / 1e9:.1f} GB on a GPU"


def fault(job: Job, plan: MeshPlan) -> str:
    """Return why this is no plan for the job, or ""; memory is not looked at."""
    names = [name for name, _ in plan.sizes]
    if sorted(names) != sorted(AXES):
        return f"the axes are {', '.join(names) or 'none'}; they are data, pipeline and tensor, each once"
    if (ranks := math.prod(size for _, size in plan.sizes)) != job.num_gpus or min(s for _, s in plan.sizes) < 1:
        return f"the sizes make {ranks} ranks for {job.num_gpus} GPUs"
    if plan.microbatch < 1 or job.batch % (plan.microbatch * plan.size("data")):
        return f"microbatches of {plan.microbatch} on {plan.size('data')} replicas do not divide a batch of {job.batch}"
    return _fault_of_stages(job, plan)


def _fault_of_stages(job: Job, plan: MeshPlan) -> str:
    stages = plan.size("pipeline")
    if not plan.layers and job.num_layers % stages:
        return f"{stages} stages do not divide {job.num_layers} layers"
    for name in ("layers", "recompute"):
        if (named := len(getattr(plan, name))) not in (0, stages):
            return f"{name} names {named} stages of {stages}"
    if plan.layers and (min(plan.layers) < 1 or sum(plan.layers) != job.num_layers):
        return f"the stages have {' + '.join(map(str, plan.layers))} layers, and {job.num_layers} are to be dealt out"
    for stage, (layers, again) in enumerate(plan.of_stages(job)):
        if not 0 <= again <= layers:
            return f"stage {stage} has {layers} layers and computes {again} of them again"
    return ""


def cost(job: Job, plan: MeshPlan) -> Cost:
    """Return what a step costs by this plan, with 1F1B and the optimizer's state sharded over "data".

    Raises:
        ValueError: If it is no plan for the job.
    """
    if problem := fault(job, plan):
        raise ValueError(problem)
    stages, of_stages = plan.size("pipeline"), plan.of_stages(job)
    num_microbatches = job.batch // plan.size("data") // plan.microbatch
    products, reduce, again = layer_seconds(job, plan)
    times = [layers * (products + reduce) + repeated * again for layers, repeated in of_stages]
    layers, repeated = of_stages[times.index(max(times))]
    hop = message_seconds(job, plan, plan.microbatch * job.activation_bytes) if stages > 1 else 0.0
    of_stage = max(layers for layers, _ in of_stages) * job.layer_params / plan.size("tensor")
    gradients = ring_seconds(job, plan, "data", 4 * of_stage) + ring_seconds(job, plan, "data", _HALF * of_stage)
    parts = (layers * products, repeated * again, layers * reduce)
    compute, recompute, tensor = (num_microbatches * each for each in parts)
    bubble, exchange = sum(times) - max(times), 2 * (stages - 1) * hop
    seconds = compute + recompute + tensor + bubble + exchange + gradients
    needed = 6 * job.num_layers * job.layer_params * job.batch * job.num_tokens
    of_peak = needed / (seconds * job.num_gpus * job.peak_flops)
    held = stage_bytes(job, plan)
    return Cost(seconds, compute, recompute, tensor, bubble, exchange, gradients, held, max(held), of_peak)


def layer_seconds(job: Job, plan: MeshPlan) -> tuple[float, float, float]:
    """Return how long a layer takes a microbatch: products, all-reduces, and all of its forward once more."""
    products = 6 * job.layer_params * plan.microbatch * job.num_tokens / plan.size("tensor") / job.flops
    reduce = 4 * 2 * ring_seconds(job, plan, "tensor", plan.microbatch * job.activation_bytes)
    return products, reduce, products / 3 + reduce / 2


def stage_bytes(job: Job, plan: MeshPlan) -> tuple[float, ...]:
    """Return the most bytes that a GPU of each stage holds: state, and what it keeps of microbatches in flight.

    In 1F1B a stage has as many in flight as there are stages from it to the end. A layer that is computed again keeps
    its input, and while it is computed again, one such layer is there whole.
    """
    stages, num_microbatches = plan.size("pipeline"), job.batch // plan.size("data") // plan.microbatch
    numbers = plan.microbatch * job.activation_bytes / 2 / plan.size("tensor")
    of_layer = (_STATE + _SHARDED / plan.size("data")) * job.layer_params / plan.size("tensor")
    found = []
    for stage, (layers, again) in enumerate(plan.of_stages(job)):
        in_flight = min(stages - stage, num_microbatches)
        kept = in_flight * ((layers - again) * _KEPT + again * _INPUT) + (_KEPT if again else 0)
        found.append(layers * of_layer + kept * numbers)
    return tuple(found)


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
    return link_seconds(job, num_bytes, inside=plan.size("pipeline") * plan.apart("pipeline") <= job.gpus_per_node)


def link_seconds(job: Job, num_bytes: float, *, inside: bool) -> float:
    """Return how long a message takes inside a node, or from one to another."""
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


def every_order() -> list[str]:
    """Return each order of the axes, "data pipeline tensor" first."""
    return list(map(" ".join, permutations(AXES)))


def every_plan(
    job: Job, orders: Iterable[Sequence[str]] = tuple(permutations(AXES)), microbatches: Sequence[int] = (1, 2, 4, 8)
) -> list[MeshPlan]:
    """Return every plan of a job whose stages are alike and compute nothing again; memory is not looked at."""
    divisors = [each for each in range(1, job.num_gpus + 1) if job.num_gpus % each == 0]
    found = []
    for tensor, stages in product(divisors, divisors):
        sizes = {"tensor": tensor, "pipeline": stages, "data": job.num_gpus // tensor // stages}
        for order, microbatch in product(orders, microbatches):
            plan = MeshPlan(tuple((axis, sizes[axis]) for axis in order), microbatch)
            found += [] if fault(job, plan) else [plan]
    return found
