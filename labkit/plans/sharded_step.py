"""A step of a fully sharded model as a plan: what is kept in memory, what is fetched or computed again, its cost."""

from __future__ import annotations

from dataclasses import dataclass

STATE_BYTES = 16
"""Of a parameter in mixed precision with Adam: 2 parameter, 2 gradient, 4 master, 8 means."""
_HALF = 2


@dataclass(frozen=True)
class Job:
    """What is trained, and on what.

    Attributes:
        num_layers: How many layers, all alike.
        layer_params: Parameters of a layer.
        num_ranks: Each holds a shard of everything.
        memory_bytes: What a device holds.
        num_sequences: How many sequences a rank computes in a step.
        forward_s: Seconds for the forward pass of one sequence through one layer; backward takes twice as long.
        link_bytes_s: Bytes a second that a rank sends.
        activation_bytes: What one sequence keeps in a layer for backward.
        input_bytes: The layer's input alone, from which the other activations can be computed again.
    """

    num_layers: int
    layer_params: int
    num_ranks: int
    memory_bytes: int
    num_sequences: int
    forward_s: float
    link_bytes_s: float
    activation_bytes: int
    input_bytes: int

    @property
    def layer_bytes(self) -> int:
        """Bytes of a whole layer, bfloat16."""
        return _HALF * self.layer_params

    @property
    def gather_s(self) -> float:
        """Seconds to gather a layer, and as many to scatter its gradients."""
        return self.layer_bytes * (self.num_ranks - 1) / self.num_ranks / self.link_bytes_s


SEVEN_BILLION = Job(
    num_layers=32,
    layer_params=13 * 4096**2,
    num_ranks=8,
    memory_bytes=24 * 10**9,
    num_sequences=8,
    forward_s=2 * 13 * 4096**2 * 2048 / 80e12,
    link_bytes_s=25e9,
    activation_bytes=34 * 2048 * 4096,
    input_bytes=2 * 2048 * 4096,
)
"""A transformer of 7 billion parameters, sequences of 2048 tokens, eight devices of 24 GB and 80 TFLOP/s over PCIe."""


@dataclass(frozen=True)
class StepPlan:
    """How a step is done.

    Attributes:
        microbatch: How many sequences go through the model together; it divides num_sequences.
        keep: For each layer, whether it stays whole between forward and backward; else it is gathered again.
        save: For each layer, whether its activations are kept; else backward computes its forward again.
    """

    microbatch: int
    keep: tuple[bool, ...]
    save: tuple[bool, ...]


@dataclass(frozen=True)
class Cost:
    """What a step costs: seconds, and the most bytes a device holds."""

    seconds: float
    peak_bytes: int


def fault(job: Job, plan: StepPlan) -> str:
    """Return why this is no plan for the job, or ""; memory is not looked at."""
    if plan.microbatch < 1 or job.num_sequences % plan.microbatch:
        return f"microbatch={plan.microbatch} does not divide {job.num_sequences} sequences"
    for name, each in (("keep", plan.keep), ("save", plan.save)):
        if len(each) != job.num_layers:
            return f"{name} has {len(each)} entries for {job.num_layers} layers"
    return ""


def cost(job: Job, plan: StepPlan) -> Cost:
    """Return what a step costs by this plan.

    A layer is gathered while the one before it computes, and its gradients leave while the next one does; a link
    carries one thing at a time.

    Raises:
        ValueError: If it is no plan for the job.
    """
    if problem := fault(job, plan):
        raise ValueError(problem)
    return Cost(gradients_left(job, plan)[0] * (job.num_sequences // plan.microbatch), peak_bytes(job, plan))


def gradients_left(job: Job, plan: StepPlan) -> list[float]:
    """Return when each layer's gradients have left, in seconds from the microbatch's start; layer 0's are its end."""
    forward, gather = plan.microbatch * job.forward_s, job.gather_s
    link = compute = begun = 0.0  # when link and device are free again; when the last layer began to compute
    for _ in range(job.num_layers):
        link = max(link, begun) + gather
        begun = max(compute, link)
        compute = begun + forward
    arrived, left = 0.0, [0.0] * job.num_layers
    if not plan.keep[-1]:
        arrived = link = max(link, compute) + gather
    for layer in reversed(range(job.num_layers)):
        begun, arrived = max(compute, arrived), 0.0
        if layer and not plan.keep[layer - 1]:
            arrived = link = max(link, begun) + gather
        compute = begun + (2 if plan.save[layer] else 3) * forward
        left[layer] = link = max(link, compute) + gather  # its gradients leave
    return left


def peak_bytes(job: Job, plan: StepPlan) -> int:
    """Return the most bytes a device holds."""
    state = STATE_BYTES * job.layer_params * job.num_layers // job.num_ranks
    full, small = plan.microbatch * job.activation_bytes, plan.microbatch * job.input_bytes
    whole, last, peak, stays = job.layer_bytes, job.num_layers - 1, 0, 0
    after: list[int] = []
    for layer in range(job.num_layers):
        two = whole * (2 if layer < last else 1)
        peak = max(peak, stays + two + full)
        after.append(stays)
        stays += (full if plan.save[layer] else small) + (whole if plan.keep[layer] else 0)
    for layer in range(job.num_layers):
        arriving = whole if layer and not plan.keep[layer - 1] else 0
        leaving = whole if layer < last else 0
        peak = max(peak, after[layer] + 2 * whole + arriving + leaving + full)
    return state + peak
