"""Why a plan is chosen: what limits it, why the next loses, and what would change the choice."""

from __future__ import annotations

from dataclasses import replace

from labkit.errors import ConfigError
from labkit.planner.plan import Job, Plan, best_plans, planned
from labkit.units import format_bytes, format_percent, format_time
from labkit.words import join

_PARTS = {
    "products": "matrix products",
    "elementwise": "elementwise operators and the loss",
    "host": "the host, which issues operators more slowly than the device runs them",
    "tensor": "tensor-parallel traffic",
    "bubble": "the pipeline's bubble",
    "exchange": "exchanges between stages",
    "gradients": "gradients (and parameters, with ZeRO) that travel uncovered",
    "optimizer": "the optimizer and what a step costs besides",
    "retries": "the allocator's retries near the end of memory",
}


def where_it_goes(plan: Plan) -> str:
    """Return a step's parts, the largest first, those of at least 1 %."""
    parts = sorted(((getattr(plan.time, name), words) for name, words in _PARTS.items()), reverse=True)
    said = [f"{format_percent(part / plan.seconds)} {words}" for part, words in parts if part >= 0.01 * plan.seconds]
    return join(said)


def what_it_holds(plan: Plan) -> str:
    """Return what the fullest rank holds, the largest first, those of at least 1 %."""
    held = plan.memory
    named = ("parameters", "gradients", "optimizer", "activations", "logits", "other")
    parts = sorted(((float(getattr(held, name)), name) for name in named), reverse=True)
    said = [f"{format_bytes(part)} {words}" for part, words in parts if part >= 0.01 * held.total]
    return f"{join(said)} (stage {held.stage})" if plan.layout.pipeline > 1 else join(said)


def why_it_loses(plan: Plan, to: Plan) -> str:
    """Return what a plan takes more than a faster one, the largest first."""
    more = sorted(((getattr(plan.time, name) - getattr(to.time, name), name) for name in _PARTS), reverse=True)
    behind = plan.seconds - to.seconds
    said = [f"{format_time(part * 1e9)} {_PARTS[name]}" for part, name in more if part > max(0.1 * behind, 1e-4)][:2]
    less, name = more[-1]
    saved = f"; it saves {format_time(-less * 1e9)} {_PARTS[name]}" if -less > max(0.1 * behind, 1e-4) else ""
    if not said:
        return "It takes as long, within a tenth of a millisecond."
    return f"{format_time(behind * 1e9)} slower: it adds {join(said)}{saved}."


def what_would_change_it(best: Plan) -> list[str]:
    """Return how the choice changes with more memory, a better network, or half the batch: one sentence each."""
    job = best.job
    machines = job.machines
    roomier = replace(machines, device=replace(machines.device, memory_bytes=141 * 10**9))
    quicker = replace(machines, nic=replace(machines.nic, bytes_per_second=2 * machines.nic.bytes_per_second))
    said = []
    if machines.device.memory_bytes < roomier.device.memory_bytes:
        said += _differs(best, replace(job, machines=roomier), "With 141 GB a GPU")
    if job.num_gpus > machines.node_size:
        said += _differs(best, replace(job, machines=quicker), "With a network twice as fast")
    if job.batch % 2 == 0:
        said += _differs(best, replace(job, batch=job.batch // 2), "With half the batch")
    return said


def _differs(best: Plan, job: Job, when: str) -> list[str]:
    try:
        other = best_plans(job, 1)[0]
    except ConfigError:
        return [f"{when}, no plan fits."]
    if _kind(other) == _kind(best):
        return []
    before = planned(
        job, replace(best.layout, accumulation=max(1, job.batch // best.layout.data // best.layout.microbatch))
    )
    if before.layout.batch != job.batch:
        return [f"{when}, the best plan is {other.layout}."]
    gained = before.seconds / other.seconds - 1
    return [f"{when}, the best plan is {other.layout}: {format_percent(gained, 1)} faster than this one."]


def _kind(plan: Plan) -> tuple[object, ...]:
    split = plan.layout
    return (split.data, split.pipeline, split.tensor, split.microbatch, split.zero, split.recompute)
