"""A design: a planner; the answer is a plan for each job, scored by what the virtual cluster took by it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from labkit.checks.case import Case, Values
from labkit.checks.challenge import Challenge, Pars, for_half_and_all
from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.checks.structure import ANYTHING
from labkit.checks.values import listed
from labkit.checks.wire import Wire
from labkit.exercises.planner.cases import Runs, as_row, job_in, plan_of, runs_of
from labkit.exercises.planner.choose_plan.driver import PLAYS, drive
from labkit.exercises.planner.costs import stage_bytes, step_seconds
from labkit.plans.planned_step import Job, Plan, fault, job_of

GB = 1e9
NEAR = 1.01
"""How many times the best plan's time earns all."""


def choice_case(name: str, runs: Runs, memory_gb: float) -> Case:
    """Return the case of a job whose GPUs have so much memory; what the cluster took is the judge's."""
    job = replace(runs.job, memory_bytes=memory_gb * GB)
    rows = [[*as_row(plan), seconds] for plan, seconds in runs.seconds.items()]
    return Case(name, 1, ({"job": dict(vars(job))},), {"runs": rows})


def _plan(values: Values) -> Plan | None:
    data = values["plan"]
    if not isinstance(data, list) or len(data) != 5 or not isinstance(data[4], bool | int):
        return None
    return plan_of(data) if all(type(each) is int for each in data[:4]) else None


def _seconds(case: Case) -> dict[Plan, float]:
    return {plan_of(row[:5]): row[5] for row in listed(case.about, "runs")}


def fitting(job: Job, seconds: dict[Plan, float]) -> dict[Plan, float]:
    """Return the plans that fit, with what a step takes by each."""
    return {plan: took for plan, took in seconds.items() if max(stage_bytes(job, plan)) <= job.memory_bytes}


def rule_of_thumb(plans: list[Plan]) -> Plan:
    """Return, of plans that fit, the one with the fewest tensor ranks x stages, and of those the largest microbatch.

    Plans that compute layers again count where no other fits.
    """
    once = [plan for plan in plans if not plan.recompute] or plans
    fewest = min(plan.tensor * plan.pipeline for plan in once)
    alike = [plan for plan in once if plan.tensor * plan.pipeline == fewest]
    return max(alike, key=lambda plan: (plan.microbatch, -plan.tensor))


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield why this is no plan, or why it does not fit."""
    job, plan = job_in(case.inputs[0]), _plan(got[0])
    if got[0]["plan"] == PLAYS:
        yield Finding(PLAYS, "choose_plan plays nothing: it has seconds for thousands of plans.")
        return
    if plan is None:
        yield Finding(_NO_PLAN, f"choose_plan returned {got[0]['plan']!s:.90}, expected a Plan.")
        return
    if problem := fault(job, plan):
        yield Finding(_ILLEGAL, f"This plan does not fit the job: {problem}.")
        return
    if plan not in _seconds(case):
        yield Finding(_UNKNOWN, f"every_plan does not list this plan: {plan}.")
        return
    held = stage_bytes(job, plan)
    if max(held) > job.memory_bytes:
        fullest, most = held.index(max(held)), max(held) / GB
        text = f"A GPU of stage {fullest} would hold {most:.1f} GB at its peak, and has {job.memory_bytes / GB:g} GB."
        yield Finding(_TOO_MUCH, text, f"at most {job.memory_bytes / GB:g} GB", f"{most:.1f} GB")
        return
    took, par = score(case, got), pars(case)
    if took >= par.naive > par.best:
        text = f"It works and takes {took:,.4g} ms; the rule of thumb takes {par.naive:,.4g}. Points are for less."
        by_the_rule = plan == rule_of_thumb(list(fitting(job, _seconds(case))))
        name = "" if by_the_rule else slip(job, list(_seconds(case)), plan)
        yield Finding(name or _SLOW, text, f"less than {par.naive:,.4g} ms", f"{took:,.4g} ms")
    elif took > par.paper and len(case.about) > 1 and (name := slip(job, list(_seconds(case)), plan)):  # for all points
        text = f"A step takes {took:,.4g} ms; the best plan that fits takes {par.best:,.4g}."
        yield Finding(name, text, f"{par.paper:,.4g} ms", f"{took:,.4g} ms")


def slip(job: Job, plans: list[Plan], picked: Plan) -> str:
    """Return the usual mistake by which right parts pick this plan, or ""."""
    fits = [plan for plan in plans if max(stage_bytes(job, plan)) <= job.memory_bytes]
    roomy = [plan for plan in plans if sum(stage_bytes(job, plan)) <= job.memory_bytes]
    kept = [
        (_MARGIN, [plan for plan in fits if max(stage_bytes(job, plan)) < job.memory_bytes]),
        (_SUM, roomy),
        (_ONE_SEQUENCE, [plan for plan in fits if plan.microbatch == 1]),
        (_NEVER_AGAIN, [plan for plan in fits if not plan.recompute]),
        *((_MARGIN, [plan for plan in fits if max(stage_bytes(job, plan)) <= share * job.memory_bytes])
          for share in (0.95, 0.9, 0.8)),
    ]  # fmt: skip
    unsplit = [(_UNSPLIT, [plan for plan in fits if getattr(plan, axis) == 1]) for axis in ("tensor", "pipeline")]
    picks = [(name, min(some, key=lambda plan: step_seconds(job, plan))) for name, some in kept if some]
    picks.append((_OTHER_JOB, min(fits, key=lambda plan: step_seconds(SMALL, plan))))
    picks += [(name, min(some, key=lambda plan: step_seconds(job, plan))) for name, some in unsplit if some]
    return next((name for name, pick in picks if pick == picked), "")


def score(case: Case, got: tuple[Values, ...]) -> float:
    """Return the milliseconds that a step took on the virtual cluster by the plan that came."""
    plan = _plan(got[0])
    assert plan is not None
    return 1e3 * _seconds(case)[plan]


def pars(case: Case) -> Pars:
    """Return the milliseconds of the rule of thumb, of 1 % over the best, and of the best of all plans that fit."""
    seconds = fitting(job_in(case.inputs[0]), _seconds(case))
    best = 1e3 * min(seconds.values())
    return Pars(1e3 * seconds[rule_of_thumb(list(seconds))], NEAR * best, best)


_NO_PLAN, _ILLEGAL, _UNKNOWN, _TOO_MUCH = "no plan", "not for this job", "not in the list", "does not fit"
_SLOW = "slower than the rule of thumb"
_NEVER_AGAIN, _MARGIN, _SUM = "never recomputes", "a margin", "all stages on one GPU"
_ONE_SEQUENCE, _OTHER_JOB, _NONE = "microbatches of one", "another job's steps", "nothing fits"
_UNSPLIT = "one axis left out"
SMALL = job_of(2048, 16, 16, 64)
"""The job of the lesson's other cells."""
FULL_GB = 38.528876544
"""What the best plan of 8 B on 16 GPUs with 47 GB holds, to the byte."""
_RUNS = runs_of()

EXERCISE = declared(
    id="choose_plan",
    functions=("choose_plan",),
    driver=drive,
    oracle=lambda case: [],
    structure=lambda case: [{"plan": ANYTHING}],
    looks=(find,),
    mistakes=(
        Mistake(_NO_PLAN, "Return one of every_plan(job), or a Plan(data, pipeline, tensor, microbatch, recompute)."),
        Mistake(_ILLEGAL, "data x pipeline x tensor are job.num_gpus; stages divide the layers, and data x microbatch "
                "divides the batch."),
        Mistake(_UNKNOWN, "The cluster ran the plans of every_plan(job): microbatches of 1, 2 and 4."),
        Mistake(PLAYS, "Time each plan by your own step_seconds, and leave the cluster alone."),
        Mistake(_NEVER_AGAIN, "Plans that recompute are plans, too: one of them fits and is faster."),
        Mistake(_MARGIN, "A plan may use all of job.memory_bytes: leave no margin, and compare with <=."),
        Mistake(_UNSPLIT, "Plans with tensor ranks are plans, too, and so are those with stages: here one that you "
                "left out fits and is faster."),
        Mistake(_SLOW, "Another plan that fits is faster: time each by your own step_seconds, and take the least."),
        Mistake(_SUM, "So it comes out if the sum of stage_bytes must fit, or if plans of one stage alone count. Each "
                "stage has GPUs of its own: the largest number must fit."),
        Mistake(_ONE_SEQUENCE, "Larger microbatches are plans, too: here one of them fits and is faster."),
        Mistake(_OTHER_JOB, "Time the plans of the job that you are given, and not SMALL's."),
        Mistake(_NONE, "Some plans fit every job. Hold the largest number of stage_bytes, in bytes of one GPU, against "
                "job.memory_bytes.", says=("is an empty sequence", "iterable argument is empty"), certain=True),
        Mistake(_TOO_MUCH, "The fullest stage may hold job.memory_bytes at most. If that is what you ask for, your "
                "stage_bytes returns too little: check it first."),
    ),
    visible=(
        choice_case("6.4 B on 32 GPUs with 24 GB", _RUNS["6.4 B on 32 H100s"], 24),
        choice_case("8 B on 16 GPUs with 16 GB", _RUNS["8 B on 16 H100s"], 16),
        choice_case("0.8 B on 16 GPUs with 8 GB", _RUNS["0.8 B on 16 H100s"], 8),
        for_half_and_all([choice_case("0.8 B on 16 GPUs with 2 GB", _RUNS["0.8 B on 16 H100s"], 2)])[1],
        for_half_and_all([choice_case("8 B on 16 GPUs with 47 GB", _RUNS["8 B on 16 H100s"], 47)])[1],
        for_half_and_all([choice_case("8 B on 16 GPUs, filled", _RUNS["8 B on 16 H100s"], FULL_GB)])[1],
    ),
    hints=(
        "How many plans does a job have? What do you know of each of them without running any?",
        "Leave out what does not fit, and of the rest take the plan with the shortest step, by your own functions.",
        "fits = [plan for plan in every_plan(job) if max(stage_bytes(job, plan)) <= job.memory_bytes], then "
        "min(fits, key=lambda plan: step_seconds(job, plan)).",
    ),
    distributed=False,
    challenge=Challenge("ms", score, pars, plan="plan", reference="1 % over the best"),
)  # fmt: skip
