"""What designs of a sharded step are held against: a plan at all, one for this job, one that fits into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar, cast

from labkit.checks.case import Value
from labkit.checks.finding import Finding
from labkit.exercises.sharded_training.jobs import GB
from labkit.plans.sharded_step import Job

NO_PLAN, ILLEGAL, TOO_MUCH = "no plan", "not for this job", "does not fit"

Plan = TypeVar("Plan")


def flags_of(value: Value) -> tuple[bool, ...] | None:
    """Return a list of bools, one for each layer, as a tuple; None for anything else."""
    if isinstance(value, list) and all(type(each) is bool for each in value):
        return tuple(cast("list[bool]", value))
    return None


def last_layers(count: int, job: Job) -> tuple[bool, ...]:
    """Return a flag for each layer of a job, true for the last `count`."""
    return tuple(layer >= job.num_layers - count for layer in range(job.num_layers))


def misfits(
    job: Job, plan: Plan | None, returned: str, problem: Callable[[Plan], str], peak_bytes: Callable[[Plan], float]
) -> Iterator[Finding]:
    """Yield the first reason why a device cannot run a step by what was returned.

    Args:
        job: The model and its devices.
        plan: What was returned, None where it is no plan.
        returned: Says what came and what was expected.
        problem: Of a plan: why it does not suit the job, "" where it does.
        peak_bytes: Of a plan: what a device holds at its peak.
    """
    if plan is None:
        yield Finding(NO_PLAN, returned)
        return
    if why := problem(plan):
        yield Finding(ILLEGAL, f"This plan does not fit the job: {why}.")
        return
    peak = peak_bytes(plan)
    if peak > job.memory_bytes:
        text = f"A device would hold {peak / GB:.2f} GB at its peak, and has {job.memory_bytes / GB:g} GB."
        yield Finding(TOO_MUCH, text, f"at most {job.memory_bytes / GB:g} GB", f"{peak / GB:.2f} GB")
