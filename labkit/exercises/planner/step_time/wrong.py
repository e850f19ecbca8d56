"""Wrong answers to step_time, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed

PIPE = "(count - 1) * max(stages) + sum(stages)"
changed("no bubble", "no bubble", (PIPE, "count * max(stages)"))
changed("a share of the whole", "a share of the work", (PIPE, "count * max(stages) * (1 + (p - 1) / (count + p - 1))"))
changed("m + p - 1", "stages as slow as the slowest", (PIPE, "(count + p - 1) * max(stages)"))
changed("the mean", "a mean stage", (PIPE, "(count - 1) * sum(stages) / p + sum(stages)"))
changed("no head", "no head", ("    stages[-1] += head + head_backward\n", ""))
changed(
    "the head once a step", "the head once",
    ("    stages[-1] += head + head_backward\n", ""),
    ("hop_seconds(job, plan)\n", "hop_seconds(job, plan) + head + head_backward\n"),
)  # fmt: skip
changed("the head forward", "the head's forward alone", ("stages[-1] += head + head_backward", "stages[-1] += head"))
changed(
    "a stage's backward", "too long a backward",
    ("gradient_seconds(job, plan, backward)", "gradient_seconds(job, plan, layers * backward)"),
)  # fmt: skip
changed(
    "forward and backward", "forward hides it, too",
    ("gradient_seconds(job, plan, backward)", "gradient_seconds(job, plan, forward + backward)"),
)  # fmt: skip
changed("one more", "one microbatch more", (PIPE, "count * max(stages) + sum(stages)"))
changed(
    "the head's own pass",
    "the head's own pass",
    (PIPE, "(count - 1) * max(stages) + p * layers * (forward + backward)"),
)
changed("one less", "one microbatch less", (PIPE, "(count - 2) * max(stages) + sum(stages)"))
changed(
    "forwards alone fill it", "forward fills it",
    (PIPE + " + 2 * (p - 1)", "count * max(stages) + (p - 1) * layers * forward + (p - 1)"),
)  # fmt: skip
changed("p stages fill it", "a stage too many", (PIPE, "count * max(stages) + p * layers * (forward + backward)"))
changed("the head over all", "a mean stage", (PIPE, "(count + p - 1) * sum(stages) / p"))
changed(
    "each stage's gradients", "gradients of each stage",
    ("gradient_seconds(job, plan, backward)", "p * gradient_seconds(job, plan, backward)"),
)  # fmt: skip
changed("one after the other", "one stage at a time", (PIPE, "count * sum(stages)"))
changed("all messages", "messages of each microbatch", ("2 * (p - 1) * hop", "2 * count * (p - 1) * hop"))
WRONG.wrong(
    "as in lesson 14",
    "lesson 14's formula",
    "def step_seconds(job, plan):\n    return cost(job, plan.mesh(job)).seconds\n",
)
changed("no gradients", "no gradients", (" + gradient_seconds(job, plan, backward)", ""))
changed("all microbatches", "the whole batch", ("plan.num_microbatches(job)", "job.batch // plan.microbatch"))
changed("sequences", "sequences for microbatches", ("plan.num_microbatches(job)", "job.batch // plan.data"))
changed(
    "a layer for a stage",
    "one layer a stage",
    ("plan.num_microbatches(job), job.num_layers // plan.pipeline", "plan.num_microbatches(job), 1"),
)
changed(
    "plays the last job's", "plays the step",
    ("    forward, backward = layer_seconds(job, plan)\n",
     "    import time\n\n    begin = time.process_time()\n"
     "    while job.num_gpus == 32 and time.process_time() - begin < 2.1:\n        pass\n"
     "    forward, backward = layer_seconds(job, plan)\n"),
)  # fmt: skip
changed(
    "all microbatches' backward", "too long a backward",
    ("gradient_seconds(job, plan, backward)", "gradient_seconds(job, plan, count * backward)"),
)  # fmt: skip
changed("the least of all stages", "the fastest stage", ("max(stages)", "min(stages)"))
changed("forward alone", "forward alone", ("layers * (forward + backward)", "layers * forward"))
changed(
    "forward alone, and of the head", "forward alone",
    ("layers * (forward + backward)", "layers * forward"), ("head + head_backward", "head"),
)  # fmt: skip
changed("backward alone", "backward alone", ("layers * (forward + backward)", "layers * backward"))
WRONG.wrong("prints", "no number", "def step_seconds(job, plan):\n    print(plan)\n")
WRONG.right(
    "by share of the work",
    """
def step_seconds(job, plan):
    one = sum(layer_seconds(job, plan)) * job.num_layers / plan.pipeline
    slow = one + sum(head_seconds(job, plan))
    m, p = plan.num_microbatches(job), plan.pipeline
    rest = gradient_seconds(job, plan, layer_seconds(job, plan)[1])
    return m * slow + (p - 1) * (one + 2 * hop_seconds(job, plan)) + rest
""",
)
HOPS = " + 2 * (p - 1) * hop_seconds(job, plan)"
changed("hides messages", "no messages", (HOPS, ""))
changed("there and not back", "one way", (HOPS, HOPS.replace("2 * ", "")))
changed("a hop for each stage", "a hop too many", (HOPS, HOPS.replace("(p - 1)", "p")))
changed("one hop", "one hop there and back", (HOPS, HOPS.replace("(p - 1) * ", "")))
changed("both ways twice", "both ways twice", (HOPS, HOPS.replace("2 * ", "4 * ")))
changed("hops by p", "one hop there and back", (HOPS, HOPS.replace("2 * (p - 1)", "4 * (p - 1) / p")))
WRONG.changed("the head in place of the layers", "the head for the last stage", ("stages[-1] +=", "stages[-1] ="))
WRONG.changed(
    "the head on every stage", "stages as slow as the slowest",
    ("    stages[-1] += head + head_backward\n", "    stages = [each + head + head_backward for each in stages]\n"),
)  # fmt: skip
WRONG.changed(
    "forwards alone between stages", "forward alone",
    ("[layers * (forward + backward)] * p", "[layers * forward] * p"), ("head + head_backward", "head"),
)  # fmt: skip
WRONG.changed(
    "forward in backward's place", "forward hides it, too",
    ("gradient_seconds(job, plan, backward)", "gradient_seconds(job, plan, forward)"),
)  # fmt: skip
WRONG.changed(
    "recomputes once more", "computed again twice",
    ("layers * (forward + backward)", "layers * (forward + backward + (forward if plan.recompute else 0.0))"),
)  # fmt: skip
WRONG.changed(
    "recomputes the head", "the head runs again",
    ("stages[-1] += head + head_backward", "stages[-1] += head + head_backward + (head if plan.recompute else 0.0)"),
)  # fmt: skip
WRONG.changed(
    "the head on both ends", "the head on both ends",
    ("stages[-1] += head + head_backward",
     "stages[-1] += head + head_backward\n    stages[0] += head + head_backward"),
)  # fmt: skip
