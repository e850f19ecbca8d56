"""Wrong answers to offload_plan, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()


plan = WRONG.within("""
def offload_plan(job, host):
    no, yes = (False,) * job.num_layers, (True,) * job.num_layers
    return ...
""")

plan("a step alone", "no plan", "StepPlan(1, no, no)")
plan("forty layers less one", "not for this job", "OffloadPlan(StepPlan(1, no, no), yes[1:])")
plan("five at a time", "not for this job", "OffloadPlan(StepPlan(5, no, no), yes)")
plan("nothing moved", "does not fit", "OffloadPlan(StepPlan(1, no, no), no)")
