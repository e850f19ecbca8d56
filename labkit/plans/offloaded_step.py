"""A step of a fully sharded model whose optimizer lies, for some layers, in the host's memory; its cost."""

from __future__ import annotations

from dataclasses import dataclass

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
    num_layers=40,
    layer_params=13 * 5120**2,
    num_ranks=8,
    memory_bytes=24 * 10**9,
    num_sequences=8,
    forward_s=2 * 13 * 5120**2 * 2048 / 80e12,
    link_bytes_s=25e9,
    activation_bytes=34 * 2048 * 5120,
    input_bytes=2 * 2048 * 5120,
)
"""A transformer of 13.6 billion parameters, sequences of 2048 tokens, on the eight devices of SEVEN_BILLION."""

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
    shard = job.layer_params / job.num_ranks
    down = updated = up = 0.0
    for layer in reversed(range(job.num_layers)):
        if plan.host[layer]:
            down = max(down, left[layer]) + _HALF * shard / host.link_bytes_s
            updated = max(updated, down) + shard / host.adam_params_s
            up = max(up, updated) + _HALF * shard / host.link_bytes_s
    waits = max(0.0, up - left[0])
    moved = MOVED_BYTES * job.layer_params * sum(plan.host) // job.num_ranks
    plain = left[0] * (job.num_sequences // plan.step.microbatch)
    return Cost(plain + waits, peak_bytes(job, plan.step) - moved)
