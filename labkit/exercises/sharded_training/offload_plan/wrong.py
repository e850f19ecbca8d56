"""Wrong answers to offload_plan, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()


def plan(name: str, mistake: str, body: str) -> None:
    WRONG.wrong(
        name,
        mistake,
        f"def offload_plan(job, host):\n    no = (False,) * job.num_layers\n    yes = (True,) * job.num_layers\n    "
        f"return {body}\n",
    )


plan("a step alone", "no plan", "StepPlan(1, no, no)")
plan("forty layers less one", "not for this job", "OffloadPlan(StepPlan(1, no, no), yes[1:])")
plan("five at a time", "not for this job", "OffloadPlan(StepPlan(5, no, no), yes)")
plan("nothing moved", "does not fit", "OffloadPlan(StepPlan(1, no, no), no)")
