"""Wrong answers to exposed_gradients, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed

REST = "    return done - now\n"
BUCKET = 'scatter_seconds(job, plan, "data", 4 * params / plan.tensor)'
GATHER = 'scatter_seconds(job, plan, "data", 2 * sum(buckets) / plan.tensor)'
changed("adds all buckets", "nothing hidden", (REST, "    return sum(takes)\n"))
changed("one subtraction", "hidden before it is ready", (REST, "    return max(0.0, sum(takes) - sum(computing))\n"))
changed("the last bucket", "the last bucket alone", (REST, "    return takes[-1]\n"))
changed("no queue", "all at once", ("done = max(now, done) + travels", "done = max(done, now + travels)"))
changed("when it ends", "the end, not the rest", (REST, "    return done\n"))
changed("gradients in bfloat16", "bfloat16 gradients", (BUCKET, BUCKET.replace("4 *", "2 *")))
changed("all-reduces", "all-reduced", (BUCKET, f"2 * {BUCKET}"))
changed("gathers nothing", "no parameters back", (f" + {GATHER}", ""))
changed("gathers float32", "parameters in float32", (GATHER, GATHER.replace("2 *", "4 *")))
changed("whole gradients", "uncut", (" / plan.tensor", ""))
changed(
    "no embedding", "no embedding",
    ("[job.layer_params] * layers + [job.end_params]", "[job.layer_params] * layers"),
    ("[backward] * layers + [0.0]", "[backward] * layers"),
)  # fmt: skip
changed("no head", "no head", ("if plan.pipeline == 1:", "if False:"))
WRONG.wrong(
    "prints", "no number",
    "def exposed_seconds(computing, takes):\n    print(takes)\n\n\n"
    "def gradient_seconds(job, plan, backward, head_backward):\n    print(plan)\n",
)  # fmt: skip
WRONG.right(
    "recursive",
    """
def exposed_seconds(computing, takes):
    left = 0.0
    for computed, travels in zip(computing, takes):
        left = max(0.0, left - computed) + travels
    return left


def gradient_seconds(job, plan, backward, head_backward):
    if plan.data == 1:
        return 0
    n = job.num_layers // plan.pipeline
    both = (job.layer_params, job.end_params)
    layer, end = (scatter_seconds(job, plan, "data", 4 * each / plan.tensor) for each in both)
    alone = plan.pipeline == 1
    rest = exposed_seconds([head_backward] * alone + [backward] * n + [0], [end] * alone + [layer] * n + [end])
    params = n * job.layer_params + (1 + alone) * job.end_params
    return rest + scatter_seconds(job, plan, "data", 2 * params / plan.tensor)
""",
)
