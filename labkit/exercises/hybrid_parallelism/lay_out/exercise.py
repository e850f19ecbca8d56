"""A design: order and sizes of a mesh's axes for a job; the answer is a plan, scored by its time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, cast

from labkit.checks.case import Case, Values
from labkit.checks.challenge import Challenge, Pars
from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.checks.structure import ANYTHING
from labkit.checks.wire import Wire
from labkit.exercises.hybrid_parallelism.lay_out.driver import drive
from labkit.plans.hybrid_step import AXES, JOBS, Job, MeshPlan, cost, every_plan, fault, peak_bytes

GB = 1e9


def lay_out_case(name: str, job: Job) -> Case:
    """Return a case of lay_out."""
    return Case(name, 1, ({"job": dict(vars(job))},))


def _job(case: Case) -> Job:
    return Job(**cast(dict[str, Any], case.inputs[0]["job"]))


def _plan(values: Values) -> MeshPlan | None:
    data = values["plan"]
    if not isinstance(data, dict) or set(data) != {"sizes", "microbatch"} or not isinstance(data["sizes"], list):
        return None
    pairs = [each for each in data["sizes"] if isinstance(each, list) and len(each) == 2]
    if len(pairs) != len(data["sizes"]) or type(data["microbatch"]) is not int:
        return None
    if any(type(axis) is not str or type(size) is not int or size < 1 for axis, size in pairs):
        return None
    return MeshPlan(tuple((cast(str, axis), cast(int, size)) for axis, size in pairs), data["microbatch"])


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield why this is no plan, or why it does not fit."""
    job, plan = _job(case), _plan(got[0])
    if plan is None:
        yield Finding(_NO_PLAN, f"lay_out returned {got[0]['plan']!s:.90}, expected a MeshPlan.")
        return
    if problem := fault(job, plan):
        yield Finding(_of_fault(job, plan), f"This plan does not fit the job: {problem}.")
        return
    held = peak_bytes(job, plan)
    if held > job.memory_bytes:
        text = f"A GPU would hold {held / GB:.1f} GB at its peak, and has {job.memory_bytes / GB:g} GB."
        yield Finding(_TOO_MUCH, text, f"at most {job.memory_bytes / GB:g} GB", f"{held / GB:.1f} GB")


def _of_fault(job: Job, plan: MeshPlan) -> str:
    if sorted(axis for axis, _ in plan.sizes) != sorted(AXES):
        return _OTHER_AXES
    if plan.size("data") * plan.size("tensor") * plan.size("pipeline") != job.num_gpus:
        return _GPUS
    return _LAYERS if job.num_layers % plan.size("pipeline") else _BATCH


def seconds(case: Case, got: tuple[Values, ...]) -> float:
    """Return how long a step takes with the plan that came."""
    plan = _plan(got[0])
    assert plan is not None
    return cost(_job(case), plan).seconds


def pars(case: Case) -> Pars:
    """Return the seconds of three plans.

    Naive: no pipeline, as few tensor ranks as fit, side by side. The paper's: tensor ranks fill a node, stages are on
    other nodes, and their number and the microbatch are the best (Narayanan and others, 2021). The best of all plans.
    """
    return _pars(_job(case))


@lru_cache(maxsize=64)
def _pars(job: Job) -> Pars:
    def took(plan: MeshPlan) -> float:
        return cost(job, plan).seconds

    plans = every_plan(job, list(itertools.permutations(AXES)))
    plain = [each for each in plans if _order(each) == AXES and each.size("pipeline") == 1 and each.microbatch == 1]
    papers = [
        each
        for each in plans
        if _order(each) == ("pipeline", "data", "tensor") and each.size("tensor") == job.gpus_per_node
    ]
    naive = min(plain, key=lambda each: each.size("tensor"))
    return Pars(took(naive), min(map(took, papers)), min(map(took, plans)))


def _order(plan: MeshPlan) -> tuple[str, ...]:
    return tuple(axis for axis, _ in plan.sizes)


_NO_PLAN, _OTHER_AXES, _GPUS, _LAYERS, _BATCH, _TOO_MUCH = (
    "no plan", "other axes", "not all GPUs", "stages do not divide", "microbatches do not divide", "does not fit",
)  # fmt: skip

EXERCISE = declared(
    id="lay_out",
    functions=("lay_out",),
    driver=drive,
    oracle=lambda case: [],
    structure=lambda case: [{"plan": ANYTHING}],
    looks=(find,),
    mistakes=(
        Mistake(_NO_PLAN, "Return MeshPlan(sizes, microbatch): sizes has a pair (axis, ranks) for each axis, "
                "outermost first."),
        Mistake(_OTHER_AXES, "sizes names \"data\", \"pipeline\" and \"tensor\", each once; an axis of 1 rank is "
                "named, too."),
        Mistake(_GPUS, "The sizes of the three axes multiply to job.num_gpus."),
        Mistake(_LAYERS, "Every stage has equally many layers: the ranks of \"pipeline\" divide job.num_layers."),
        Mistake(_BATCH, "microbatch x the ranks of \"data\" divides job.batch."),
        Mistake(_TOO_MUCH,
                "cost(job, plan).peak_bytes is more than a GPU has. More stages or tensor ranks hold less each; a "
                "smaller microbatch keeps fewer activations."),
    ),
    visible=tuple(lay_out_case(name, job) for name, job in JOBS.items()),
    hints=(
        "Print cost() of the naive plan: which of compute, tensor, bubble, exchange and gradients is largest? What "
        "makes it "
        "smaller, and what larger?",
        "Three sizes that multiply to num_gpus, six orders, a few microbatches: that is some hundred plans. Which of "
        "them are plans at all, fit, and take least?",
        "for order in itertools.permutations((\"data\", \"pipeline\", \"tensor\")): for all divisors: plan = "
        "MeshPlan(...); "
        "if not fault(job, plan) and cost(job, plan).peak_bytes <= job.memory_bytes: keep the one with the least "
        "seconds.",
    ),
    distributed=False,
    challenge=Challenge("s", seconds, pars, plan="plan", reference="Megatron-LM's rule"),
)  # fmt: skip
