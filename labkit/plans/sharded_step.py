"""A step of a fully sharded model as a plan: what is kept in memory, what is fetched or computed again, its cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

STATE_BYTES = 16
"""Of a parameter in mixed precision with Adam: 2 parameter, 2 gradient, 4 master, 8 means."""
_HALF = 2


@dataclass(frozen=True)
class Job:
    """What is trained, and on what. The layers may differ in size, but each computes as long as the others.

    Attributes:
        layer_params: Parameters of each layer.
        num_ranks: Each holds a shard of everything.
        memory_bytes: What a device holds.
        num_samples: How many samples a rank computes in a step.
        forward_s: Seconds for the forward pass of one sample through one layer; backward takes twice as long.
        link_bytes_s: Bytes a second that a rank sends.
        activation_bytes: What one sample keeps in each layer for backward.
        input_bytes: Each layer's input alone, from which its other activations can be computed again.
    """

    layer_params: tuple[int, ...]
    num_ranks: int
    memory_bytes: int
    num_samples: int
    forward_s: float
    link_bytes_s: float
    activation_bytes: tuple[int, ...]
    input_bytes: tuple[int, ...]

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Job:
        """Return a job from its fields, whose tuples may have become lists on their way."""
        tuples: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
        }
        return cls(**tuples)

    @property
    def num_layers(self) -> int:
        """How many layers the model has."""
        return len(self.layer_params)

    def layer_bytes(self, layer: int) -> int:
        """Return the bytes of a whole layer, bfloat16."""
        return _HALF * self.layer_params[layer]

    def gather_s(self, layer: int) -> float:
        """Return the seconds to gather a layer, and as many to scatter its gradients."""
        return self.layer_bytes(layer) * (self.num_ranks - 1) / self.num_ranks / self.link_bytes_s


def unet_of(
    depths: tuple[int, ...] = (4, 4, 10, 4, 4), *, channels: int = 1792, positions: int = 8192, num_ranks: int = 8,
    memory_gb: float = 24, link_gb_s: float = 25, num_samples: int = 4, tflops: float = 80,
) -> Job:  # fmt: skip
    """Return a job: a U-Net without its skip connections.

    Each level down has a quarter of the positions and twice the channels: as many operations in a layer, four times
    its parameters, half of its activations.

    Args:
        depths: Layers at each level, on the way down and up again: (4, 4, 10, 4, 4) has three levels.
        channels: Of the first level.
        positions: Of the first level, in one sample.
        num_ranks: How many devices there are.
        memory_gb: What each holds.
        link_gb_s: What each sends, in GB/s.
        num_samples: How many samples a rank computes in a step.
        tflops: What each device computes, in useful TFLOP/s.

    Source: Ronneberger et al. 2015, "U-Net: Convolutional networks for biomedical image segmentation".
    """
    levels = [min(at, len(depths) - 1 - at) for at, depth in enumerate(depths) for _ in range(depth)]
    width = [channels * 2**level for level in levels]
    numbers = [positions // 4**level * each for level, each in zip(levels, width, strict=True)]
    return Job(
        layer_params=tuple(12 * each**2 for each in width),
        num_ranks=num_ranks,
        memory_bytes=int(memory_gb * 1e9),
        num_samples=num_samples,
        forward_s=2 * 12 * channels**2 * positions / (tflops * 1e12),
        link_bytes_s=link_gb_s * 1e9,
        activation_bytes=tuple(34 * each for each in numbers),
        input_bytes=tuple(_HALF * each for each in numbers),
    )


UNET = unet_of()
"""A U-Net of 7.7 billion parameters, images of 8192 positions, eight devices of 24 GB and 80 TFLOP/s over PCIe."""


@dataclass(frozen=True)
class StepPlan:
    """How a step is done.

    Attributes:
        microbatch: How many samples go through the model together; it divides num_samples.
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
    if plan.microbatch < 1 or job.num_samples % plan.microbatch:
        return f"microbatch={plan.microbatch} does not divide {job.num_samples} samples"
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
    return Cost(gradients_left(job, plan)[0] * (job.num_samples // plan.microbatch), peak_bytes(job, plan))


def gradients_left(job: Job, plan: StepPlan) -> list[float]:
    """Return when each layer's gradients have left, in seconds from the microbatch's start; layer 0's are its end."""
    forward = plan.microbatch * job.forward_s
    link = compute = begun = 0.0  # when link and device are free again; when the last layer began to compute
    for layer in range(job.num_layers):
        link = max(link, begun) + job.gather_s(layer)
        begun = max(compute, link)
        compute = begun + forward
    arrived, left = 0.0, [0.0] * job.num_layers
    if not plan.keep[-1]:
        arrived = link = max(link, compute) + job.gather_s(job.num_layers - 1)
    for layer in reversed(range(job.num_layers)):
        begun, arrived = max(compute, arrived), 0.0
        if layer and not plan.keep[layer - 1]:
            arrived = link = max(link, begun) + job.gather_s(layer - 1)
        compute = begun + (2 if plan.save[layer] else 3) * forward
        left[layer] = link = max(link, compute) + job.gather_s(layer)  # its gradients leave
    return left


def peak_bytes(job: Job, plan: StepPlan) -> int:
    """Return the most bytes a device holds."""
    state = STATE_BYTES * sum(job.layer_params) // job.num_ranks
    whole = [job.layer_bytes(layer) for layer in range(job.num_layers)]
    full = [plan.microbatch * each for each in job.activation_bytes]
    small = [plan.microbatch * each for each in job.input_bytes]
    peak = stays = 0
    after: list[int] = []
    for layer in range(job.num_layers):
        peak = max(peak, stays + sum(whole[layer : layer + 2]) + full[layer])
        after.append(stays)
        stays += (full if plan.save[layer] else small)[layer] + (whole[layer] if plan.keep[layer] else 0)
    for layer in range(job.num_layers):
        arriving = whole[layer - 1] if layer and not plan.keep[layer - 1] else 0
        leaving = sum(whole[layer + 1 : layer + 2])
        peak = max(peak, after[layer] + 2 * whole[layer] + arriving + leaving + full[layer])
    return state + peak
