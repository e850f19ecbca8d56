"""A design: how a job saves and recovers; the answer is a plan, scored by the time it loses over several seeds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from functools import lru_cache
from typing import Any, cast

from labkit.checks.case import Case, Values
from labkit.checks.challenge import Challenge, Pars
from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.checks.structure import ANYTHING
from labkit.checks.wire import Wire
from labkit.exercises.when_machines_fail.recovery_policy.driver import drive
from labkit.failures.policies import young_interval_s
from labkit.failures.recovery import JOBS, Job, Recovery, fault, lost

Seeds = tuple[int, ...]

FOUND = dict(
    zip(
        JOBS.values(),
        (
            Recovery(119, background=True, copy_every=34, when_short="shrink"),
            Recovery(182, background=True, copy_every=53, when_short="shrink"),
            Recovery(41, background=True, copy_every=7, when_short="shrink"),
        ),
        strict=True,
    )
)
"""The best plan of each job that a search over hundreds of saves, copies and spares found, at the seeds of `lost`."""


def recovery_case(name: str, job: Job, seeds: Seeds = (0, 1, 2)) -> Case:
    """Return a case of recovery_policy; the seeds draw its failures, and an answer does not see them."""
    return Case(name, 1, ({"job": asdict(job)},), {"seeds": list(seeds)})


def _about(case: Case) -> tuple[Job, Seeds]:
    return Job(**cast(dict[str, Any], case.inputs[0]["job"])), tuple(cast(list[int], case.about["seeds"]))


def _plan(values: Values) -> Recovery | None:
    data = values["plan"]
    if not isinstance(data, dict) or set(data) != {each.name for each in fields(Recovery)}:
        return None
    return Recovery(**cast(dict[str, Any], data))


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield why this is no plan for the job."""
    (job, seeds), plan = _about(case), _plan(got[0])
    if plan is None:
        yield Finding(_NO_PLAN, f"plan_recovery returned {got[0]['plan']!s:.90}, expected a Recovery.")
    elif problem := fault(job, plan):
        name = _REPLICAS if "replicas" in problem else _NUMBERS if "is no number" in problem else _WORDS
        yield Finding(name, f"This is no plan for the job: {problem}.")
    elif (case_lost := percent(case, got)) >= pars(case).naive:
        if mistake := _costly(job, plan):
            yield Finding(mistake, f"It saves every {plan.save_every} steps, and loses {case_lost:.4g} % of the time.")
        elif plan.when_short == "wait" and case_lost > pars(case).naive:
            shrinks = lost(job, replace(plan, when_short="shrink"), seeds)
            if shrinks < case_lost / 2:
                text = f"With {plan.spares} spares it waits for repairs, and loses {case_lost:.4g} % of the time"
                yield Finding(_WAITS, f"{text}; shrinking, {shrinks:.4g} %.")


def _costly(job: Job, plan: Recovery) -> str:
    """Return the mistake of a plan that saves too often, or seconds apart for steps; "" for neither."""
    seconds = [young_interval_s(stop_s, job.mean_s) for stop_s in (job.save_s, job.stop_s)]
    if job.step_s > 1 and any(abs(plan.save_every - each) <= max(1.0, 0.01 * each) for each in seconds):
        return _SECONDS
    return _EVERY if plan.save_every == 1 else ""


def percent(case: Case, got: tuple[Values, ...]) -> float:
    """Return how many percent of the nodes' time the plan loses."""
    (job, seeds), plan = _about(case), _plan(got[0])
    assert plan is not None
    return lost(job, plan, seeds)


def pars(case: Case) -> Pars:
    """Return what three plans lose.

    Naive: saves every hour, nodes of one replica stand by, and it waits where they do not suffice. Young/Daly: saves at
    their interval, in the foreground or the background, and shrinks. The best found: from theirs, from copies, and from
    what a longer search found for the job.
    """
    return _pars(*_about(case))


@lru_cache(maxsize=64)
def _pars(job: Job, seeds: Seeds) -> Pars:
    tried: dict[Recovery, float] = {}

    def loses(plan: Recovery) -> float:
        if plan not in tried:
            tried[plan] = lost(job, plan, seeds)
        return tried[plan]

    def steps(stop_s: float) -> int:
        return max(1, round(young_interval_s(stop_s, job.mean_s) / job.step_s))

    naive = Recovery(max(1, round(3600 / job.step_s)), spares=job.replica_nodes)
    papers = [
        Recovery(steps(job.stop_s if background else job.save_s), background, when_short="shrink")
        for background in (False, True)
    ]
    paper = min(papers, key=loses)
    seldom = round(steps(job.stop_s) / job.copies_lost**0.5)  # only what takes copies, too, needs the storage
    copies = [
        Recovery(max(1, every), background=True, copy_every=steps(job.copy_s), when_short="shrink")
        for every in (seldom, 4 * paper.save_every)
    ]
    known = [FOUND[job]] if job in FOUND else []
    best = min((_improved(plan, job, loses) for plan in (paper, *copies, *known)), key=loses)
    return Pars(loses(naive), loses(paper), loses(best))


def _improved(plan: Recovery, job: Job, loses: Any) -> Recovery:
    """Return a plan that no small change makes better."""
    while True:
        near = [
            replace(plan, save_every=max(1, round(plan.save_every * by)))
            for by in (0.6, 0.8, 0.9, 0.95, 1.05, 1.1, 1.25, 1.6)
        ]
        near += [
            replace(plan, copy_every=max(1, round(plan.copy_every * by)))
            for by in (0.7, 0.85, 1.2, 1.4)
            if plan.copy_every
        ]
        near += [replace(plan, spares=plan.spares + by) for by in (-job.replica_nodes, job.replica_nodes)]
        better = min([each for each in near if not fault(job, each)], key=loses)
        if loses(better) >= loses(plan) - 0.01:
            return plan
        plan = better


_NO_PLAN, _NUMBERS, _REPLICAS, _WORDS, _SECONDS, _EVERY, _WAITS = (
    "no plan", "no whole number", "no whole replicas", "no such way", "seconds for steps", "saves at every step",
    "waits for repairs",
)  # fmt: skip

EXERCISE = declared(
    id="recovery_policy",
    functions=("plan_recovery",),
    driver=drive,
    oracle=lambda case: [],
    structure=lambda case: [{"plan": ANYTHING}],
    looks=(find,),
    mistakes=(
        Mistake(_NO_PLAN, "Return Recovery(save_every=..., ...)."),
        Mistake(_NUMBERS, "Steps and nodes are whole numbers, and save_every is at least 1: round what a formula "
                "gives, and divide seconds by job.step_s."),
        Mistake(_REPLICAS, "job.nodes less the spares must be a multiple of job.replica_nodes."),
        Mistake(_SECONDS, "These are the seconds between two saves. save_every counts steps: divide by job.step_s."),
        Mistake(_EVERY, "A save at every step stops the training for longer than the steps take. What does one cost, "
                "and what does it spare?"),
        Mistake(_WAITS, "Where no spare is left, all nodes wait until one is repaired: a day or two. Keep spares, or "
                'go on with fewer replicas: when_short="shrink".'),
        Mistake(_WORDS, 'background is True or False, when_short is "wait" or "shrink".'),
    ),
    visible=tuple(recovery_case(name, job) for name, job in JOBS.items()),
    hints=(
        "What does a save stop, what does an interruption cost, and what does a missing node? Which of the three is "
        "largest for the naive plan?",
        "Young's interval is sqrt(2 x what a save stops x time between interruptions): in seconds, so divide by "
        "job.step_s. A save in the background stops less. Shrinking costs only the missing nodes.",
        "stop_s = job.stop_s; steps = round(math.sqrt(2 * stop_s * job.mean_s) / job.step_s); Recovery(steps, "
        'background=True, when_short="shrink"). Then try copies, and a few intervals, with lost(job, plan).',
    ),
    distributed=False,
    challenge=Challenge("% lost", percent, pars, plan="plan", reference="Young/Daly"),
)  # fmt: skip
