"""Wrong answers to choose_plan, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()


def chooses(name: str, mistake: str, what: str) -> None:
    WRONG.wrong(name, mistake, f"def choose_plan(job):\n    return {what}\n")


chooses("a tuple", "no plan", "(job.num_gpus, 1, 1)")
chooses("half of the GPUs", "not for this job", "Plan(job.num_gpus // 2, 1, 1)")
chooses("a microbatch of 8", "not in the list", "Plan(2, job.num_gpus // 2 // 4, 4, 8)")
chooses("data alone", "does not fit", "Plan(job.num_gpus, 1, 1)")
WRONG.wrong(
    "the first that fits", "slower than the rule of thumb",
    "def choose_plan(job):\n"
    "    return next(p for p in every_plan(job) if max(stage_bytes(job, p)) <= job.memory_bytes)\n",
)  # fmt: skip
WRONG.wrong(
    "the rule of thumb", "slower than the rule of thumb",
    "def choose_plan(job):\n"
    "    fits = [p for p in every_plan(job) if max(stage_bytes(job, p)) <= job.memory_bytes]\n"
    "    return min(fits, key=lambda p: (p.recompute, p.tensor * p.pipeline, -p.microbatch, p.tensor))\n",
)  # fmt: skip
WRONG.wrong(
    "the fastest of all", "does not fit",
    "def choose_plan(job):\n    return min(every_plan(job), key=lambda plan: step_seconds(job, plan))\n",
)  # fmt: skip
WRONG.wrong(
    "fits on the mean", "does not fit",
    "def choose_plan(job):\n"
    "    fits = [p for p in every_plan(job) if sum(stage_bytes(job, p)) / p.pipeline <= job.memory_bytes]\n"
    "    return min(fits, key=lambda plan: step_seconds(job, plan))\n",
)  # fmt: skip
WRONG.wrong(
    "sums the stages", "all stages on one GPU",
    "def choose_plan(job):\n"
    "    fits = [p for p in every_plan(job) if sum(stage_bytes(job, p)) <= job.memory_bytes]\n"
    "    return min(fits, key=lambda plan: step_seconds(job, plan))\n",
)  # fmt: skip
WRONG.wrong(
    "recomputes nothing", "never recomputes",
    "def choose_plan(job):\n"
    "    fits = [p for p in every_plan(job) if max(stage_bytes(job, p)) <= job.memory_bytes and not p.recompute]\n"
    "    return min(fits, key=lambda plan: step_seconds(job, plan))\n",
)  # fmt: skip
WRONG.wrong(
    "keeps a tenth free", "a margin",
    "def choose_plan(job):\n"
    "    fits = [p for p in every_plan(job) if max(stage_bytes(job, p)) <= 0.9 * job.memory_bytes]\n"
    "    return min(fits, key=lambda plan: step_seconds(job, plan))\n",
)  # fmt: skip
WRONG.wrong(
    "microbatches of one", "microbatches of one",
    "def choose_plan(job):\n"
    "    fits = [p for p in every_plan(job, (1,)) if max(stage_bytes(job, p)) <= job.memory_bytes]\n"
    "    return min(fits, key=lambda plan: step_seconds(job, plan))\n",
)  # fmt: skip
WRONG.wrong(
    "times the lesson's job", "another job's steps",
    "def choose_plan(job):\n"
    "    fits = [p for p in every_plan(job) if max(stage_bytes(job, p)) <= job.memory_bytes]\n"
    "    return min(fits, key=lambda plan: step_seconds(SMALL, plan))\n",
)  # fmt: skip
WRONG.wrong(
    "gigabytes for bytes", "nothing fits",
    "def choose_plan(job):\n"
    "    fits = [p for p in every_plan(job) if max(stage_bytes(job, p)) <= job.memory_bytes / 1e9]\n"
    "    return min(fits, key=lambda plan: step_seconds(job, plan))\n",
)  # fmt: skip
WRONG.wrong(
    "plays the first two", "plays plans",
    "def choose_plan(job):\n"
    "    from labkit.planned_jobs import played\n\n"
    "    fits = [p for p in every_plan(job) if max(stage_bytes(job, p)) <= job.memory_bytes]\n"
    "    fits.sort(key=lambda plan: step_seconds(job, plan))\n"
    "    return min(fits[:2], key=lambda plan: played(job, plan).seconds)\n",
)  # fmt: skip
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
