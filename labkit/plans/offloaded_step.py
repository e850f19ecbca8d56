"""A step of a fully sharded model whose optimizer lies, for some layers, in the host's memory; its cost."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import compress

from labkit.plans.sharded_step import Cost, Job, StepPlan, fault, gradients_left, peak_bytes

MOVED_BYTES = 12
"""Of a parameter whose optimizer lies in the host's memory: 4 master, 8 means."""
_HALF = 2


@dataclass(frozen=True)
class Host:
    """What each rank can use of its host.

    Attributes:
        link_bytes_s: Bytes a second between the device and the host's memory, in each direction.
        adam_params_s: Parameters a second that its share of the host's cores updates.
    """

    link_bytes_s: float
    adam_params_s: float


@dataclass(frozen=True)
class OffloadPlan:
    """How a step is done, and which layers' optimizer state is in the host's memory.

    Attributes:
        step: The microbatch, the layers that stay whole, and the activations that are kept.
        host: For each layer, whether the host has its master weights and Adam's means, and updates it.
    """

    step: StepPlan
    host: tuple[bool, ...]


THIRTEEN_BILLION = Job(
    layer_params=(13 * 5120**2,) * 40,
    num_ranks=8,
    memory_bytes=24 * 10**9,
    num_samples=8,
    forward_s=2 * 13 * 5120**2 * 2048 / 80e12,
    link_bytes_s=25e9,
    activation_bytes=(34 * 2048 * 5120,) * 40,
    input_bytes=(2 * 2048 * 5120,) * 40,
)
"""A transformer of 13.6 billion parameters, 2048 tokens a sample, eight devices of 24 GB and 80 TFLOP/s over PCIe."""

HOST = Host(link_bytes_s=12e9, adam_params_s=0.25e9)
"""An eighth of a server: its memory behind PCIe, and cores that update two billion parameters a second together."""


def offload_fault(job: Job, plan: OffloadPlan) -> str:
    """Return why this is no plan for the job, or ""; memory is not looked at."""
    if len(plan.host) != job.num_layers:
        return f"host has {len(plan.host)} entries for {job.num_layers} layers"
    return fault(job, plan.step)


def offloaded_cost(job: Job, host: Host, plan: OffloadPlan) -> Cost:
    """Return what a step costs by this plan.

    In the last microbatch's backward, a layer's gradient shard goes to the host as soon as it is there. The host
    updates one layer after another, and the new parameters come back. The device updates its own layers in no time.

    Raises:
        ValueError: If it is no plan for the job.
    """
    if problem := offload_fault(job, plan):
        raise ValueError(problem)
    left = gradients_left(job, plan.step)
    down = updated = up = 0.0
    for layer in reversed(range(job.num_layers)):
        if plan.host[layer]:
            shard = job.layer_params[layer] / job.num_ranks
            down = max(down, left[layer]) + _HALF * shard / host.link_bytes_s
            updated = max(updated, down) + shard / host.adam_params_s
            up = max(up, updated) + _HALF * shard / host.link_bytes_s
    waits = max(0.0, up - left[0])
    moved = MOVED_BYTES * sum(compress(job.layer_params, plan.host)) // job.num_ranks
    plain = left[0] * (job.num_samples // plan.step.microbatch)
    return Cost(plain + waits, peak_bytes(job, plan.step) - moved)
