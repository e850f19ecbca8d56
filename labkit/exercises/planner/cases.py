"""A job and its plans as data, and the runs of the virtual cluster that answers are held against."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, cast

from labkit.checks.case import Case, Value, Values
from labkit.checks.values import listed
from labkit.exercises.planner.parted import Numbers, off_by_a_part
from labkit.plans.planned_step import Job, Plan


class Runs(NamedTuple):
    """A job, and how long a step takes by each of its plans."""

    job: Job
    seconds: dict[Plan, float]


VISIBLE = Path(__file__).with_name("runs.json")


@lru_cache(maxsize=4)
def runs_of(path: Path = VISIBLE) -> dict[str, Runs]:
    """Return the recorded runs of a file by their job's name."""
    held = json.loads(path.read_text(encoding="utf-8"))
    return {
        name: Runs(Job(**about["job"]), {plan_of(row[:5]): row[5] for row in about["runs"]})
        for name, about in held.items()
    }


def as_row(plan: Plan) -> list[Value]:
    """Return a plan as data."""
    return [plan.data, plan.pipeline, plan.tensor, plan.microbatch, int(plan.recompute)]


def plan_of(row: Sequence[Any]) -> Plan:
    """Return the plan that data describe."""
    data, pipeline, tensor, microbatch, recompute = row
    return Plan(data, pipeline, tensor, microbatch, bool(recompute))


def plans_case(name: str, job: Job, plans: Sequence[Plan], **more: Value) -> Case:
    """Return a case of a function that is called with a job and each of these plans."""
    return Case(name, 1, ({"job": dict(vars(job)), "plans": [as_row(plan) for plan in plans], **more},))


def job_in(inputs: Values) -> Job:
    """Return the job of a case."""
    return Job(**cast(dict[str, Any], inputs["job"]))


def plans_in(inputs: Values) -> list[Plan]:
    """Return the plans of a case."""
    return [plan_of(row) for row in listed(inputs, "plans")]


def in_parts(
    case: Case, came: Numbers, exact: Callable[[Job, Plan], Any], parts: Callable[[Job, Plan], Mapping[str, Any]]
) -> str:
    """Return which part of a formula is off in all that came for a case's plans, or ""."""
    job, plans = asked(case)
    of_plans = [parts(job, plan) for plan in plans]
    by_name = {name: [each[name] for each in of_plans] for name in of_plans[0]}
    return off_by_a_part(came, [exact(job, plan) for plan in plans], by_name, job, plans)


def asked(case: Case) -> tuple[Job, list[Plan]]:
    """Return what a case asks about."""
    return job_in(case.inputs[0]), plans_in(case.inputs[0])
