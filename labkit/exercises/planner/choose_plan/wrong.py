"""Wrong answers to choose_plan, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
whole = WRONG.within("""
def choose_plan(job):
    ...
""")


chooses = WRONG.within("def choose_plan(job):\n    return ...\n")

chooses("a tuple", "no plan", "(job.num_gpus, 1, 1)")
chooses("half of the GPUs", "not for this job", "Plan(job.num_gpus // 2, 1, 1)")
chooses("a microbatch of 8", "not in the list", "Plan(2, job.num_gpus // 2 // 4, 4, 8)")
chooses("data alone", "does not fit", "Plan(job.num_gpus, 1, 1)")
whole(
    "the first that fits",
    "slower than the rule of thumb",
    "return next(p for p in every_plan(job) if max(stage_bytes(job, p)) <= job.memory_bytes)",
)
whole(
    "the rule of thumb",
    "slower than the rule of thumb",
    """
fits = [p for p in every_plan(job) if max(stage_bytes(job, p)) <= job.memory_bytes]
return min(fits, key=lambda p: (p.recompute, p.tensor * p.pipeline, -p.microbatch, p.tensor))
""",
)
whole("the fastest of all", "does not fit", "return min(every_plan(job), key=lambda plan: step_seconds(job, plan))")
whole(
    "fits on the mean",
    "does not fit",
    """
fits = [p for p in every_plan(job) if sum(stage_bytes(job, p)) / p.pipeline <= job.memory_bytes]
return min(fits, key=lambda plan: step_seconds(job, plan))
""",
)
whole(
    "sums the stages",
    "all stages on one GPU",
    """
fits = [p for p in every_plan(job) if sum(stage_bytes(job, p)) <= job.memory_bytes]
return min(fits, key=lambda plan: step_seconds(job, plan))
""",
)
whole(
    "recomputes nothing",
    "never recomputes",
    """
fits = [p for p in every_plan(job) if max(stage_bytes(job, p)) <= job.memory_bytes and not p.recompute]
return min(fits, key=lambda plan: step_seconds(job, plan))
""",
)
whole(
    "keeps a tenth free",
    "a margin",
    """
fits = [p for p in every_plan(job) if max(stage_bytes(job, p)) <= 0.9 * job.memory_bytes]
return min(fits, key=lambda plan: step_seconds(job, plan))
""",
)
whole(
    "microbatches of one",
    "microbatches of one",
    """
fits = [p for p in every_plan(job, (1,)) if max(stage_bytes(job, p)) <= job.memory_bytes]
return min(fits, key=lambda plan: step_seconds(job, plan))
""",
)
whole(
    "times the lesson's job",
    "another job's steps",
    """
fits = [p for p in every_plan(job) if max(stage_bytes(job, p)) <= job.memory_bytes]
return min(fits, key=lambda plan: step_seconds(SMALL, plan))
""",
)
whole(
    "gigabytes for bytes",
    "nothing fits",
    """
fits = [p for p in every_plan(job) if max(stage_bytes(job, p)) <= job.memory_bytes / 1e9]
return min(fits, key=lambda plan: step_seconds(job, plan))
""",
)
whole(
    "plays the first two",
    "plays plans",
    """
from labkit.planned_jobs import played

fits = [p for p in every_plan(job) if max(stage_bytes(job, p)) <= job.memory_bytes]
fits.sort(key=lambda plan: step_seconds(job, plan))
return min(fits[:2], key=lambda plan: played(job, plan).seconds)
""",
)
WRONG.right(
    "a loop over what fits",
    """
def choose_plan(job):
    best = None
    for plan in every_plan(job, [4, 2, 1]):
        if max(stage_bytes(job, plan)) > job.memory_bytes:
            continue
        if best is None or step_seconds(job, plan) < step_seconds(job, best):
            best = plan
    return best
""",
)
for share, how in (("1", "<"), ("0.8", "<=")):
    whole(
        f"takes {how} {share} of the memory", "a margin",
        f"""
fits = [p for p in every_plan(job) if max(stage_bytes(job, p)) {how} {share} * job.memory_bytes]
return min(fits, key=lambda plan: step_seconds(job, plan))
""",
    )  # fmt: skip
for axis, mistake in (("tensor", "one axis left out"), ("pipeline", "all stages on one GPU")):
    whole(
        f"one rank along {axis}", mistake,
        f"""
fits = [p for p in every_plan(job) if max(stage_bytes(job, p)) <= job.memory_bytes]
return min([p for p in fits if p.{axis} == 1] or fits, key=lambda plan: step_seconds(job, plan))
""",
    )  # fmt: skip
