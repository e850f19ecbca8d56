"""Plans beside their steps on the virtual cluster: where the planner's model is off, and by how much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from labkit.planned_steps.prices import CLUSTER_MEMORY, LAYER_OPERATORS, cluster_costs
from labkit.planned_steps.program import Moments, planned_step
from labkit.planned_steps.programs import PLAIN, Program
from labkit.planner.plan import Plan, planned
from labkit.timeline import Timeline
from labkit.timeline.intervals import total, union
from labkit.timeline.span import Lane
from labkit.units import format_bytes, format_percent, format_time
from labkit.virtual_world import VirtualWorld, virtual
from labkit.worlds import run

_MORE = 2  # microbatches, or layers of a stage, by which two runs differ
_FEW_LAYERS = 3
_PRODUCTS = ("mm", "addmm", "bmm", "_scaled_dot_product")
_TENSOR = ("all_gather_into_tensor", "reduce_scatter_tensor")
PARTS = {
    "products": ("products",),
    "elementwise operators": ("elementwise",),
    "tensor traffic": ("tensor",),
    "bubble, exchanges and the host": ("bubble", "exchange", "host", "retries"),
    "gradients": ("gradients",),
    "optimizer": ("optimizer",),
}
"""Parts of a step as both can tell them, and those of the planner's StepTime that each is."""


@dataclass(frozen=True)
class Simulated:
    """A plan's step on the virtual cluster.

    Attributes:
        seconds: Of the step, on the rank that takes longest.
        parts: Where they go on the stage that computes longest, by the names of PARTS.
        memory_bytes: What the fullest rank holds at most.
    """

    seconds: float
    parts: dict[str, float]
    memory_bytes: int


@dataclass(frozen=True)
class Verified:
    """A plan by the cluster's prices beside its step there."""

    plan: Plan
    simulated: Simulated

    @property
    def error(self) -> float:
        """How much too long the plan is, as a share."""
        return self.plan.seconds / self.simulated.seconds - 1

    @property
    def memory_error(self) -> float:
        """How much too much memory the plan has, as a share."""
        return self.plan.memory.total / self.simulated.memory_bytes - 1

    def differences(self) -> list[tuple[str, float]]:
        """Return each part with the seconds that the plan has too many, those most off first."""
        found = []
        for name, parts in PARTS.items():
            found.append((name, sum(getattr(self.plan.time, part) for part in parts) - self.simulated.parts[name]))
        return sorted(found, key=lambda part: -abs(part[1]))

    def lines(self) -> list[str]:
        """Return what the comparison says."""
        plan, simulated = self.plan, self.simulated
        name, off = self.differences()[0]
        word = "too long" if off > 0 else "too short"
        return [
            f"planned with the cluster's prices {format_time(plan.seconds * 1e9)}, simulated "
            f"{format_time(simulated.seconds * 1e9)}: the plan is {format_percent(abs(self.error), 1)} "
            f"{'too long' if self.error > 0 else 'too short'}",
            f"most off: {name}, {format_time(abs(off) * 1e9)} {word} of "
            f"{format_time(simulated.parts[name] * 1e9)}; memory {format_bytes(plan.memory.total)} planned, "
            f"{format_bytes(simulated.memory_bytes)} simulated",
        ]


def at_cluster_prices(plan: Plan) -> Plan:
    """Return the plan with what the virtual cluster prices in place of a real program's costs."""
    return planned(replace(plan.job, costs=cluster_costs(plan.job.machines), held=CLUSTER_MEMORY), plan.layout)


def verify(plan: Plan) -> Verified:
    """Return a plan by the cluster's prices beside its step on the virtual cluster."""
    return Verified(at_cluster_prices(plan), simulate(plan))


def faster_than_planned(done: Sequence[Verified]) -> str:
    """Return whether the simulated steps are in the order of the plans, by the cluster's prices."""
    simulated = min(range(len(done)), key=lambda place: done[place].simulated.seconds)
    at_prices = min(range(len(done)), key=lambda place: done[place].plan.seconds)
    if simulated == at_prices:
        return f"Fastest there, planned and simulated: plan {simulated + 1}."
    lost = done[at_prices].simulated.seconds / done[simulated].simulated.seconds - 1
    return (
        f"Fastest there is plan {simulated + 1}; by the cluster's prices it would be plan {at_prices + 1}, which is "
        f"{format_percent(lost, 1)} slower."
    )


def machines_of(plan: Plan, program: Program = PLAIN) -> VirtualWorld:
    """Return the virtual cluster that a plan is for; replicas that do the same as others do not run."""
    machines, split = plan.job.machines, plan.layout
    device = machines.device
    device = replace(device, attention_share=program.attention_share.get(device.name, device.attention_share))
    nic = replace(machines.nic, bytes_per_second=machines.nic.bytes_per_second / machines.oversubscription)
    return virtual(
        split.world_size, gpu=device, link=machines.link, nic=nic,
        gpus_per_node=min(machines.node_size, split.world_size), shapes=True, memory=2**50,
        fold=(split.tensor, split.data) if split.data > 2 else None,
    )  # fmt: skip


def simulate(plan: Plan, program: Program = PLAIN) -> Simulated:
    """Return what a plan's step takes on the virtual cluster, run as a program does.

    Where stages alike have many layers, or a step has many microbatches, two steps with fewer run in its place: each
    layer more takes as much as the one before, and so does, once the pipeline is full, each microbatch. What is held at
    most is told by a third, with all layers and as many microbatches as are in flight at once.
    """
    split, model = plan.layout, plan.job.model
    each = model.layers // split.pipeline
    if each > 2 * _FEW_LAYERS + _MORE and (split.pipeline == 1 or (split.even and not model.layers % split.pipeline)):
        short, longer = (_with_layers(plan, program, _FEW_LAYERS + more) for more in (0, _MORE))
        held = simulate_whole(_in_flight(plan), program).memory_bytes
        return replace(_beyond(short, longer, (each - _FEW_LAYERS) / _MORE), memory_bytes=held)
    return _of_microbatches(plan, program)


def _in_flight(plan: Plan) -> Plan:
    """Return a step that holds as much as a plan's with few microbatches: one more than are in flight at once."""
    few = min(plan.layout.accumulation, plan.layout.pipeline + 1)
    return replace(plan, layout=replace(plan.layout, accumulation=few))


def _with_layers(plan: Plan, program: Program, each: int) -> Simulated:
    """Return the step of a model of which each stage has so many layers."""
    model = replace(plan.job.model, layers=each * plan.layout.pipeline)
    return _of_microbatches(replace(plan, job=replace(plan.job, model=model)), program)


def _of_microbatches(plan: Plan, program: Program) -> Simulated:
    few, count = plan.layout.pipeline + 2 if plan.layout.pipeline > 1 else 1, plan.layout.accumulation
    if count <= 2 * few + _MORE:
        return simulate_whole(plan, program)
    short, longer = (
        simulate_whole(replace(plan, layout=replace(plan.layout, accumulation=few + more)), program)
        for more in (0, _MORE)
    )
    # All microbatches in flight are there with few, too.
    return replace(_beyond(short, longer, (count - few) / _MORE), memory_bytes=longer.memory_bytes)


def _beyond(short: Simulated, longer: Simulated, times: float) -> Simulated:
    """Return a step that is so many times further from a short one than a longer one is."""

    def at(one: float, other: float) -> float:
        return one + times * (other - one)

    parts = {name: at(spent, longer.parts[name]) for name, spent in short.parts.items()}
    return Simulated(at(short.seconds, longer.seconds), parts, round(at(short.memory_bytes, longer.memory_bytes)))


def simulate_whole(plan: Plan, program: Program = PLAIN) -> Simulated:
    """Return what a plan's step takes on the virtual cluster, all its microbatches simulated."""
    program = replace(program, layer_s=_issues_s(plan, program))
    world = machines_of(plan, program)
    done = run(planned_step, plan.job.model, plan.layout, program, on=world, echo=False, timeout=None)
    moments: list[Moments] = list(done.results)
    assert done.timeline is not None
    leaders = range(0, plan.layout.world_size, plan.layout.data * plan.layout.tensor)  # a rank of each stage
    stages = [_parts(done.timeline, rank, moments[rank], plan) for rank in leaders]
    busiest = max(stages, key=lambda parts: parts["products"])
    return Simulated(max(each.end - each.begin for each in moments), busiest, max(each.peak_bytes for each in moments))


def _issues_s(plan: Plan, program: Program) -> float:
    """Return what a program's host takes to issue a layer beyond the launches of its kernels, in seconds."""
    split, machines = plan.layout, plan.job.machines
    across = split.pipeline > 1 and split.tensor > 1 and split.world_size > machines.node_size
    takes_s = program.layer_s + (program.tensor_s * split.tensor if across else 0.0)
    return max(0.0, takes_s - LAYER_OPERATORS * machines.device.launch_ns / 1e9)


def _parts(timeline: Timeline, rank: int, mine: Moments, plan: Plan) -> dict[str, float]:
    """Return where a rank's step goes; it is the last thing that the rank does."""
    begin_ns = int(timeline.end_ns[timeline.rank == rank].max()) - round((mine.end - mine.begin) * 1e9)
    until_ns = begin_ns + round((mine.computed - mine.begin) * 1e9)
    rows = (timeline.rank == rank) & (timeline.start_ns >= begin_ns) & (timeline.start_ns < until_ns)
    took = (timeline.end_ns[rows] - timeline.start_ns[rows]) / 1e9
    computing, talking = (timeline.lane[rows] == lane for lane in (Lane.COMPUTE, Lane.COMMUNICATION))
    is_product = np.array([str(name).startswith(_PRODUCTS) for name in timeline.name[rows]], dtype=bool)
    # Along "tensor" go activations of a microbatch; what else is gathered and scattered is parameters.
    activation = 2 * plan.layout.microbatch * plan.job.model.sequence * plan.job.model.hidden
    of_tensor = talking & (timeline.bytes[rows] == activation) & np.isin(timeline.kind[rows], _TENSOR)
    waiting, gradients = "bubble, exchanges and the host", mine.reduced - mine.computed + mine.end - mine.updated
    found = {
        "products": float(took[computing & is_product].sum()),
        "elementwise operators": float(took[computing & ~is_product].sum()),
        "tensor traffic": float(took[of_tensor].sum()),
    }
    # Where parameters are gathered beside products, both take longer; each then counts as its share of the time.
    busy = union(timeline.start_ns[rows][computing], timeline.end_ns[rows][computing])
    share = total(busy) / 1e9 / max(found["products"] + found["elementwise operators"], 1e-9)
    found["products"] *= share
    found["elementwise operators"] *= share
    found[waiting] = mine.computed - mine.begin - sum(found.values())
    if plan.layout.sharding > 1:  # no stage waits there: what is not covered is parameters and gradients
        found[waiting], gradients = 0.0, found[waiting]
    return {**found, "gradients": gradients, "optimizer": mine.updated - mine.reduced}
