"""A design: the fastest step of a sharded model that fits into memory; the answer is a plan, scored by its cost."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any, cast

from labkit.checks.case import Case, Values
from labkit.checks.challenge import Challenge, Pars
from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.checks.structure import ANYTHING
from labkit.checks.wire import Wire
from labkit.exercises.sharded_training.jobs import job_of
from labkit.exercises.sharded_training.memory_plan.driver import drive
from labkit.exercises.sharded_training.step_designs import (
    ILLEGAL,
    NO_PLAN,
    TOO_MUCH,
    flags_of,
    last_layers,
    misfits,
)
from labkit.plans.sharded_step import Cost, Job, StepPlan, cost, fault


def plan_case(name: str, **job: Any) -> Case:
    """Return a case of memory_plan; see job_of for what may be given."""
    return Case(name, 1, ({"job": dict(vars(job_of(**job)))},))


def _job(case: Case) -> Job:
    return Job(**cast(dict[str, Any], case.inputs[0]["job"]))


def _plan(values: Values) -> StepPlan | None:
    data = values["plan"]
    if not isinstance(data, dict) or set(data) != {"microbatch", "keep", "save"}:
        return None
    keep, save = flags_of(data["keep"]), flags_of(data["save"])
    if type(data["microbatch"]) is not int or keep is None or save is None:
        return None
    return StepPlan(data["microbatch"], keep, save)


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield why this is no plan, or why it does not fit."""
    job, returned = _job(case), f"memory_plan returned {got[0]['plan']!s:.90}, expected a StepPlan."
    yield from misfits(job, _plan(got[0]), returned, partial(fault, job), lambda plan: cost(job, plan).peak_bytes)


def score(case: Case, got: tuple[Values, ...]) -> float:
    """Return the seconds of a step by the plan that came."""
    plan = _plan(got[0])
    assert plan is not None
    return cost(_job(case), plan).seconds


def pars(case: Case) -> Pars:
    """Return the seconds of the largest microbatch that fits and saves nothing, and of two published settings together.

    Both are set for each layer: block recomputation, one of Megatron-LM's two methods, saves the activations of as many
    layers as fit; FSDP's reshard_after_forward says which stay whole. Here both are at their best, and the microbatch.

    Source: Korthikanti et al. 2022, "Reducing activation recomputation"; Zhao et al. 2023, "PyTorch FSDP".
    """
    return _pars(_job(case))


@lru_cache(maxsize=64)
def _pars(job: Job) -> Pars:
    sizes = [each for each in range(1, job.num_sequences + 1) if job.num_sequences % each == 0]
    found = {(size, kept): _most_saved(job, size, kept) for size in sizes for kept in range(job.num_layers + 1)}
    plain = [cost(job, StepPlan(size, last_layers(0, job), last_layers(0, job))) for size in sizes]
    naive = [each.seconds for each in plain if each.peak_bytes <= job.memory_bytes][-1]
    best = min(found.values())
    return Pars(naive, best, best)


def _most_saved(job: Job, size: int, kept: int) -> float:
    """Return the seconds where as many layers save as fit, which is fastest; infinity where there is no room."""

    def of(saved: int) -> Cost:
        return cost(job, StepPlan(size, last_layers(kept, job), last_layers(saved, job)))

    num_fit = bisect_right(range(job.num_layers + 1), job.memory_bytes, key=lambda saved: of(saved).peak_bytes)
    return of(num_fit - 1).seconds if num_fit else float("inf")


EXERCISE = declared(
    id="memory_plan",
    functions=("memory_plan",),
    driver=drive,
    oracle=lambda case: [],
    structure=lambda case: [{"plan": ANYTHING}],
    looks=(find,),
    mistakes=(
        Mistake(NO_PLAN,
                "Return StepPlan(microbatch, keep, save): an int, and a bool for each layer in keep and in save."),
        Mistake(ILLEGAL,
                "microbatch divides job.num_sequences; keep and save have job.num_layers entries each."),
        Mistake(TOO_MUCH,
                "cost(job, plan).peak_bytes says what a plan needs. Keep fewer layers whole, save fewer activations, "
                "or take a smaller microbatch, until it is at most job.memory_bytes."),
    ),
    visible=(
        plan_case("7 B on eight devices of 24 GB, PCIe"),
        plan_case("the same over a slow network", link_gb_s=6),
        plan_case("the same with 40 GB and NVLink", memory_gb=40, link_gb_s=200),
    ),
    hints=(
        "What makes the naive step slow: the link, or computing everything twice? Print the costs of a few plans.",
        "Larger microbatches need fewer gathers; saved activations spare a forward pass; kept layers spare a "
        "gather. All "
        "three take memory, and cost() says how much.",
        "Try every microbatch that divides, and every number of layers to keep and to save, counted from the "
        "last: of those "
        "with peak_bytes <= memory_bytes take the one with the fewest seconds. That is min() over three loops.",
    ),
    distributed=False,
    challenge=Challenge("s", score, pars, plan="plan", reference="block and reshard"),
)  # fmt: skip
