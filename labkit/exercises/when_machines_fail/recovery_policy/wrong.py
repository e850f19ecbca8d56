"""Wrong answers to recovery_policy, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()


plan = WRONG.within("def plan_recovery(job):\n    return ...\n")

plan("a dict", "no plan", '{"save_every": 40}')
plan("seconds, not steps", "no whole number", "Recovery((2 * job.save_s * job.mean_s) ** 0.5)")
plan("never saves", "no whole number", "Recovery(0)")
plan("a single spare", "no whole replicas", "Recovery(40, spares=1)")
plan("whole seconds", "seconds for steps", "Recovery(round((2 * job.save_s * job.mean_s) ** 0.5))")
plan("every step", "saves at every step", "Recovery(1)")
plan("Young, and waits", "waits for repairs",
     "Recovery(max(1, round((2 * job.save_s * job.mean_s) ** 0.5 / job.step_s)))")  # fmt: skip
plan("another word", "no such way", 'Recovery(40, when_short="smaller")')
WRONG.right(
    "Young's interval",
    """def plan_recovery(job):
    best = []
    for background, stop_s in ((False, job.save_s), (True, job.stop_s)):
        steps = max(1, round((2 * stop_s * job.mean_s) ** 0.5 / job.step_s))
        best.append(Recovery(steps, background, when_short="shrink"))
    return min(best, key=lambda each: lost(job, each))
""",
)
