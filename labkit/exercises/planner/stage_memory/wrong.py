"""Wrong answers to stage_memory, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed

FLIGHT = "min(p - stage, plan.num_microbatches(job))"
EMBEDDING, HEAD = "(stage == 0) * job.end_params", "(stage == p - 1) * job.end_params"
changed("forgets AdamW", "no optimizer", ("6 + 12 / plan.data", "6"))
changed("two moments alone", "no master weights", ("12 / plan.data", "8 / plan.data"))
changed("gradients in bfloat16", "gradients in bfloat16", ("6 + 12", "4 + 12"))
changed("every replica its own", "an optimizer on every replica", ("12 / plan.data", "12"))
changed("one in flight", "one microbatch in flight", (FLIGHT, "1"))
changed("p everywhere", "as many on each stage", (FLIGHT, "min(p, plan.num_microbatches(job))"))
changed("GPipe", "all microbatches", (FLIGHT, "plan.num_microbatches(job)"))
changed("warm-up alone", "warm-up alone", (FLIGHT, "min(p - stage - 1, plan.num_microbatches(job))"))
changed("the other way round", "the last one fullest", (FLIGHT, "min(stage + 1, plan.num_microbatches(job))"))
changed("more than there are", "more than there are", (FLIGHT, "(p - stage)"))
changed("no embedding", "no embedding", (EMBEDDING, "0"))
changed("no head", "no head", (HEAD, "0"))
changed("layers alone", "no ends", (EMBEDDING, "0"), (HEAD, "0"))
changed("ends on every stage", "ends everywhere", (EMBEDDING, "job.end_params"), (HEAD, "job.end_params"))
changed("first or last", "one end", (HEAD, "(stage == p - 1 > 0) * job.end_params"))
changed("ZeRO 2", "gradients shared", ("6 + 12 / plan.data", "2 + 16 / plan.data"))
changed("scores on each stage", "scores everywhere", (" if stage == p - 1 else 0\n", "\n"))
changed("one sequence", "one sequence", ("plan.microbatch * job.num_tokens", "job.num_tokens"))
changed("32 on top", "in place of its input", ("kept += 34 if plan.recompute", "kept += 32 if plan.recompute"))
changed("no scores", "no scores", ("6 * tokens * job.vocabulary / plan.tensor", "0"))
changed("inputs alone", "no layer again", ("kept += 34 if plan.recompute else 0", "kept += 0"))
changed(
    "recomputes nothing", "everything kept", ("2 if plan.recompute else 34", "34"), ("34 if plan.recompute else 0", "0")
)
changed("whole activations", "whole activations", ("tokens * job.width / plan.tensor", "tokens * job.width"))
changed(
    "in GiB",
    "GB",
    ("of_each + kept", "of_each / 2**30 + kept"),
    ("numbers + logits", "numbers / 2**30 + logits / 2**30"),
)
WRONG.wrong("the fullest", "the fullest alone", """
def stage_bytes(job, plan):
    p, tokens = plan.pipeline, plan.microbatch * job.num_tokens
    held = []
    for s in range(p):
        params = job.num_layers // p * job.layer_params + ((s == 0) + (s == p - 1)) * job.end_params
        kept = min(p - s, plan.num_microbatches(job)) * job.num_layers // p * (2 if plan.recompute else 34)
        kept = (kept + 34 * plan.recompute) * tokens * job.width
        held.append((params * (6 + 12 / plan.data) + kept + (s == p - 1) * 6 * tokens * job.vocabulary) / plan.tensor)
    return max(held)
""")  # fmt: skip
WRONG.wrong("a print", "no number", "def stage_bytes(job, plan):\n    print(job.memory_bytes)\n")
WRONG.right(
    "divides by tensor once",
    """
def stage_bytes(job, plan):
    p, tokens = plan.pipeline, plan.microbatch * job.num_tokens
    held = [job.num_layers // p * job.layer_params * (6 + 12 / plan.data) for _ in range(p)]
    held[0] += job.end_params * (6 + 12 / plan.data)
    held[-1] += job.end_params * (6 + 12 / plan.data) + 6 * tokens * job.vocabulary
    for s in range(p):
        in_flight = min(plan.num_microbatches(job), p - s)
        layer = 34 * tokens * job.width
        held[s] += in_flight * job.num_layers // p * layer / (17 if plan.recompute else 1) + layer * plan.recompute
    return tuple(each / plan.tensor for each in held)
""",
)
