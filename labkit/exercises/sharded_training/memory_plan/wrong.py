"""Wrong answers to memory_plan, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()


plan = WRONG.within("""
def memory_plan(job):
    no, yes = (False,) * job.num_layers, (True,) * job.num_layers
    return ...
""")

plan("a tuple", "no plan", "(1, no, no)")
plan("three at a time", "not for this job", "StepPlan(3, no, no)")
plan("for 32 layers less one", "not for this job", "StepPlan(1, no[1:], no)")
plan("everything in memory", "does not fit", "StepPlan(job.num_samples, yes, yes)")
