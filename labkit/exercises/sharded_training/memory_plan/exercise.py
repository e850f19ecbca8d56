"""A design: the fastest step of a sharded model that fits into memory; the answer is a plan, scored by its cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, cast

from labkit.checks.case import Case, Values
from labkit.checks.challenge import Challenge, Pars
from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.checks.structure import ANYTHING
from labkit.checks.wire import Wire
from labkit.exercises.sharded_training.memory_plan.driver import drive
from labkit.exercises.sharded_training.step_designs import (
    ILLEGAL,
    NO_PLAN,
    TOO_MUCH,
    flags_of,
    misfits,
)
from labkit.plans.sharded_step import Job, StepPlan, cost, fault, unet_of

TIES = 1.015
"""How much longer than the reference still reaches it: a rule like it may decide ties in another way."""


def plan_case(name: str, depths: tuple[int, ...] = (4, 4, 10, 4, 4), **job: Any) -> Case:
    """Return a case of memory_plan; see unet_of for what may be given."""
    return Case(name, 1, ({"job": dict(vars(unet_of(depths, **job)))},))


def _job(case: Case) -> Job:
    return Job.of(cast(dict[str, Any], case.inputs[0]["job"]))


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
    """Return the seconds of the largest microbatch that fits and saves nothing, and of Capuchin's rule.

    Capuchin weighs fetching against computing again by what each costs where it happens: nothing as long as it hides
    behind something else. Here memory goes, one choice after another, to what then saves most seconds a byte.

    Source: Peng et al. 2020, "Capuchin: Tensor-based GPU memory management for deep learning".
    """
    return _pars(_job(case))


@lru_cache(maxsize=64)
def _pars(job: Job) -> Pars:
    no = (False,) * job.num_layers
    plain = [StepPlan(size, no, no) for size in range(1, job.num_samples + 1) if job.num_samples % size == 0]
    fitting = [each for each in plain if cost(job, each).peak_bytes <= job.memory_bytes]
    best = min(cost(job, _spent(job, each)).seconds for each in fitting)
    return Pars(cost(job, fitting[-1]).seconds, TIES * best, best)


def _spent(job: Job, plan: StepPlan) -> StepPlan:
    """Return a plan with its room spent on what saves most seconds a byte, one choice after another."""
    while True:
        before, worth = cost(job, plan).seconds, []
        for more, num_bytes in _choices(job, plan):
            after = cost(job, more)
            if after.peak_bytes <= job.memory_bytes and after.seconds < before:
                worth.append(((before - after.seconds) / num_bytes, more))
        if not worth:
            return plan
        plan = max(worth, key=lambda each: each[0])[1]


def _choices(job: Job, plan: StepPlan) -> Iterator[tuple[StepPlan, int]]:
    """Yield the plans that keep or save one layer more, and the bytes that this layer then holds."""
    for layer in range(job.num_layers):
        saved = plan.microbatch * (job.activation_bytes[layer] - job.input_bytes[layer])
        for name, num_bytes in (("keep", job.layer_bytes(layer)), ("save", saved)):
            flags = getattr(plan, name)
            if not flags[layer]:
                more: dict[str, Any] = {name: (*flags[:layer], True, *flags[layer + 1 :])}
                yield replace(plan, **more), num_bytes


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
                "microbatch divides job.num_samples; keep and save have job.num_layers entries each."),
        Mistake(TOO_MUCH,
                "cost(job, plan).peak_bytes says what a plan needs. Keep fewer layers whole, save fewer activations, "
                "or take a smaller microbatch, until it is at most job.memory_bytes."),
    ),
    visible=(
        plan_case("7.7 B on eight devices of 24 GB, PCIe"),
        plan_case("the same over a slower link", link_gb_s=12),
        plan_case("7 levels up and down", (3, 3, 3, 6, 3, 3, 3), channels=1024, positions=16384, link_gb_s=12),
    ),
    hints=(
        "Where does the step wait for the link, and where does it compute? Computing a layer again while the link is "
        "behind costs nothing, and neither does a gather behind a long computation.",
        "Change one flag of a plan and compare cost() before and after: how many seconds does it save, and how many "
        "bytes does it take? Do this for all layers and both flags.",
        "For every microbatch that divides, begin with nothing kept and nothing saved. Set the flag that saves most "
        "seconds a byte and still fits. Then measure all the others again, because that choice has moved the "
        "bottleneck. Go on until no flag helps, and return the fastest of these plans.",
    ),
    distributed=False,
    challenge=Challenge("s", score, pars, plan="plan", reference="Capuchin + 1.5 %"),
)  # fmt: skip
