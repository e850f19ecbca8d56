"""A plan: one layout of one job with what it is expected to take, and the best of all layouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from labkit.errors import ConfigError
from labkit.planner.costs import HELD_BY_NANOTRON, NANOTRON, Costs, MemoryCosts
from labkit.planner.layout import RECOMPUTE, Layout, layouts, problem
from labkit.planner.memory import StepMemory, step_memory
from labkit.planner.model import Model
from labkit.planner.step import Machines, StepTime, step_time
from labkit.units import format_bytes

_FITS, _TIGHT, _FULL = "fits", "tight", "too large"


@dataclass(frozen=True)
class Job:
    """What is to be planned.

    Attributes:
        model: What is trained.
        num_gpus: Ranks.
        batch: Sequences of a step.
        machines: What it runs on.
        costs: What the program takes beyond arithmetic and bytes.
        held: What it holds beyond parameters.
    """

    model: Model
    num_gpus: int
    batch: int
    machines: Machines
    costs: Costs = NANOTRON
    held: MemoryCosts = HELD_BY_NANOTRON

    def __post_init__(self) -> None:
        if self.num_gpus < 1:
            raise ConfigError(f"a plan needs at least 1 GPU, got {self.num_gpus}")
        if self.batch < 1:
            raise ConfigError(f"a plan needs a batch of at least 1 sequence, got {self.batch}")
        size = self.machines.node_size
        if self.num_gpus > size and self.num_gpus % size:
            whole = self.num_gpus // size * size
            raise ConfigError(
                f"{self.num_gpus} GPUs are no whole number of nodes of {size}; use {whole} or {whole + size}, or say "
                "--node-size."
            )


@dataclass(frozen=True)
class Plan:
    """A layout with what it is expected to take.

    Attributes:
        job: What was asked.
        layout: How the step is split.
        time: Where a step's seconds go.
        memory: What the fullest rank holds.
        problem: Why it cannot run whatever the memory, "" where it can.
    """

    job: Job
    layout: Layout
    time: StepTime
    memory: StepMemory
    problem: str = ""

    @property
    def seconds(self) -> float:
        """How long a step takes."""
        return self.time.total

    @property
    def tokens_per_second(self) -> float:
        """Tokens of all GPUs."""
        return self.layout.batch * self.job.model.sequence / self.seconds

    @property
    def model_flop_utilisation(self) -> float:
        """The model's arithmetic over what the devices could do in that time (PaLM, appendix B)."""
        peak = self.job.machines.device.flops_per_second("bfloat16") * self.layout.world_size
        return self.tokens_per_second * self.job.model.flops_per_token / peak

    @property
    def state(self) -> str:
        """Whether it "fits", is "tight" (between the safe share and the device's memory) or "too large"."""
        capacity, held = self.job.machines.device.memory_bytes, self.memory.total
        if held <= self.job.held.safe_share * capacity:
            return _FITS
        return _TIGHT if held <= capacity else _FULL

    @property
    def fits(self) -> bool:
        """Whether it can run with memory to spare."""
        return self.state == _FITS and not self.problem


def planned(job: Job, layout: Layout) -> Plan:
    """Return what one layout is expected to take."""
    memory = step_memory(job.model, layout, job.held)
    tight = memory.total > job.held.safe_share * job.machines.device.memory_bytes
    time = step_time(job.model, layout, job.machines, job.costs, tight=tight)
    return Plan(job, layout, time, memory, problem(job.model, layout))


def best_plans(
    job: Job, top: int = 5, *, zeros: Sequence[int] = (0, 1, 2, 3), recomputes: Sequence[str] = RECOMPUTE
) -> list[Plan]:
    """Return the best plans that fit, the fastest first.

    Raises:
        ConfigError: If no layout divides the job, or none fits; it says what would.
    """
    plans = every_plan(job, zeros=zeros, recomputes=recomputes)
    found = sorted((plan for plan in plans if plan.fits), key=lambda plan: (plan.seconds, plan.layout))
    if not found:
        raise ConfigError(_what_would_fit(job, plans))
    return found[:top]


def every_plan(job: Job, *, zeros: Sequence[int] = (0, 1, 2, 3), recomputes: Sequence[str] = RECOMPUTE) -> list[Plan]:
    """Return a plan for each layout that divides the job.

    Raises:
        ConfigError: If there is none.
    """
    found = layouts(
        job.model, job.num_gpus, job.batch, node_size=job.machines.node_size, zeros=zeros, recomputes=recomputes,
        even=job.costs.even_stages,
    )  # fmt: skip
    if not found:
        more = -(-job.batch // job.num_gpus) * job.num_gpus
        raise ConfigError(
            f"No layout divides {job.num_gpus} GPUs, {job.model.layers} layers, {job.model.heads} heads and a batch of "
            f"{job.batch} sequences. A batch of {more} would do."
        )
    return [planned(job, layout) for layout in found]


def _what_would_fit(job: Job, plans: Sequence[Plan]) -> str:
    least = min(plans, key=lambda plan: plan.memory.total)
    capacity = job.machines.device.memory_bytes * job.held.safe_share
    said = (
        f"No plan holds {job.model.name} on {job.num_gpus} {job.machines.device.name} of "
        f"{format_bytes(job.machines.device.memory_bytes)}: the smallest ({least.layout}) needs "
        f"{format_bytes(least.memory.total)} a GPU, and {format_bytes(capacity)} are safe."
    )
    for factor in (2, 4, 8, 16, 32, 64):
        count, size = job.num_gpus * factor, job.machines.node_size
        whole = count if count < size else -(-count // size) * size
        more = replace(job, num_gpus=whole, batch=job.batch * factor)
        split = layouts(more.model, whole, more.batch, node_size=size, even=job.costs.even_stages)
        if all(step_memory(more.model, layout, more.held).total > capacity for layout in split):
            continue
        return f"{said} {more.num_gpus} GPUs would do."
    return said
