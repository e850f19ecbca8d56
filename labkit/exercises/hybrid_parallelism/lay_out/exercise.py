"""A design: a mesh for a job, and what each stage computes again to fit; the answer is a plan, scored by its time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, cast

from labkit.checks.case import Case, Values
from labkit.checks.challenge import Challenge, Pars
from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.checks.structure import ANYTHING
from labkit.checks.wire import Wire
from labkit.exercises.hybrid_parallelism.best_plans import adapted, as_it_is, fastest, fastest_dealt
from labkit.exercises.hybrid_parallelism.lay_out.driver import drive
from labkit.plans.hybrid_step import AXES, JOBS, Job, MeshPlan, cost, fault

GB = 1e9


def lay_out_case(name: str, job: Job) -> Case:
    """Return a case of lay_out."""
    return Case(name, 1, ({"job": dict(vars(job))},))


def _job(case: Case) -> Job:
    return Job(**cast(dict[str, Any], case.inputs[0]["job"]))


def _plan(values: Values) -> MeshPlan | None:
    data = values["plan"]
    if not isinstance(data, dict) or set(data) != {"sizes", "microbatch", "layers", "recompute"}:
        return None
    of_stages = [data["layers"], data["recompute"]]
    if not all(isinstance(each, list) for each in (data["sizes"], *of_stages)) or type(data["microbatch"]) is not int:
        return None
    pairs = [each for each in cast(list[object], data["sizes"]) if isinstance(each, list) and len(each) == 2]
    if len(pairs) != len(cast(list[object], data["sizes"])):
        return None
    if any(type(axis) is not str or type(size) is not int or size < 1 for axis, size in pairs):
        return None
    if any(type(number) is not int for each in of_stages for number in cast(list[object], each)):
        return None
    layers, recompute = (tuple(cast(list[int], each)) for each in of_stages)
    sizes = tuple((cast(str, axis), cast(int, size)) for axis, size in pairs)
    return MeshPlan(sizes, data["microbatch"], layers, recompute)


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield why this is no plan, or why it does not fit."""
    job, plan = _job(case), _plan(got[0])
    if plan is None:
        yield Finding(_NO_PLAN, f"lay_out returned {got[0]['plan']!s:.90}, expected a MeshPlan.")
        return
    if problem := fault(job, plan):
        yield Finding(_of_fault(job, plan), f"This plan does not fit the job: {problem}.")
        return
    held = cost(job, plan).stage_bytes
    if max(held) > job.memory_bytes:
        fullest, most = held.index(max(held)), max(held) / GB
        text = f"A GPU of stage {fullest} would hold {most:.1f} GB at its peak, and has {job.memory_bytes / GB:g} GB."
        yield Finding(_TOO_MUCH, text, f"at most {job.memory_bytes / GB:g} GB", f"{most:.1f} GB")


def _of_fault(job: Job, plan: MeshPlan) -> str:
    if sorted(axis for axis, _ in plan.sizes) != sorted(AXES):
        return _OTHER_AXES
    if plan.size("data") * plan.size("tensor") * plan.size("pipeline") != job.num_gpus:
        return _GPUS
    if plan.microbatch < 1 or job.batch % (plan.microbatch * plan.size("data")):
        return _BATCH
    if not plan.layers and job.num_layers % plan.size("pipeline"):
        return _LAYERS
    if any(len(each) not in (0, plan.size("pipeline")) for each in (plan.layers, plan.recompute)):
        return _STAGES
    return _DEALT if plan.layers and (min(plan.layers) < 1 or sum(plan.layers) != job.num_layers) else _AGAIN


def seconds(case: Case, got: tuple[Values, ...]) -> float:
    """Return how long a step takes with the plan that came."""
    plan = _plan(got[0])
    assert plan is not None
    return cost(_job(case), plan).seconds


def pars(case: Case) -> Pars:
    """Return the seconds of three plans.

    Naive: the fastest of those whose stages are alike that fits and computes nothing twice. The paper's: stages have as
    many layers each, and each computes as few of them again as it must (Sun and others, 2024). The best: whatever
    layers stages have.
    """
    return _pars(_job(case))


@lru_cache(maxsize=64)
def _pars(job: Job) -> Pars:
    papers = fastest(job, adapted)
    plans = fastest(job, as_it_is), papers, fastest_dealt(job, papers)
    return Pars(*(cost(job, each).seconds for each in plans))


_NO_PLAN, _OTHER_AXES, _GPUS, _LAYERS, _BATCH, _TOO_MUCH, _STAGES, _DEALT, _AGAIN = (
    "no plan", "other axes", "not all GPUs", "stages do not divide", "microbatches do not divide", "does not fit",
    "not each stage", "layers lost", "more than it has",
)  # fmt: skip

EXERCISE = declared(
    id="lay_out",
    functions=("lay_out",),
    driver=drive,
    oracle=lambda case: [],
    structure=lambda case: [{"plan": ANYTHING}],
    looks=(find,),
    mistakes=(
        Mistake(_NO_PLAN, "Return MeshPlan(sizes, microbatch, layers, recompute): sizes has a pair (axis, ranks) for "
                "each axis, outermost first; layers and recompute have a number for each stage, or none."),
        Mistake(_OTHER_AXES, "sizes names \"data\", \"pipeline\" and \"tensor\", each once; an axis of 1 rank is "
                "named, too."),
        Mistake(_GPUS, "The sizes of the three axes multiply to job.num_gpus."),
        Mistake(_LAYERS, "Without layers every stage has as many: the ranks of \"pipeline\" divide job.num_layers."),
        Mistake(_STAGES, "layers and recompute name every stage, the first one first; or they are ()."),
        Mistake(_DEALT, "layers add up to job.num_layers, and each stage has one or more."),
        Mistake(_AGAIN, "A stage cannot compute more layers again than it has, and not fewer than 0."),
        Mistake(_BATCH, "microbatch x the ranks of \"data\" divides job.batch."),
        Mistake(_TOO_MUCH,
                "cost(job, plan).stage_bytes says what a GPU of each stage holds. More stages, more tensor ranks, or "
                "layers that are computed again: each of them makes room, and each costs something else."),
    ),
    visible=tuple(lay_out_case(name, job) for name, job in JOBS.items()),
    hints=(
        "Take the fastest plan of the second job, whether it fits or not, and print its cost. Which stages are too "
        "full? Which are half empty, and why?",
        "A stage holds as many microbatches as there are stages from it to the end, so the first ones are full. To "
        "compute layers again costs a third of their time or a little more: do it where there is no room, for as few "
        "layers as it takes, and nowhere else. Then more tensor ranks or stages are no longer the only way to fit.",
        "For each plan of every_plan(job): again = [0] * stages; for each stage, while cost(job, replace(plan, "
        "recompute=tuple(again))).stage_bytes[stage] > job.memory_bytes and again[stage] < layers: again[stage] += 1. "
        "Of the plans that fit then, keep the one with the least seconds.",
    ),
    distributed=False,
    seconds=60.0,
    challenge=Challenge("s", seconds, pars, plan="plan", reference="AdaPipe with equal stages"),
)  # fmt: skip
