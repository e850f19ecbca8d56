"""Wrong answers to stage_memory, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed

FLIGHT = "min(p - stage, plan.num_microbatches(job))"
NUMBERS, AGAIN = "tokens * job.width / plan.tensor", "(34 if plan.recompute else 0)"
changed("one in flight", "one microbatch in flight", (FLIGHT, "1"))
changed("p everywhere", "as many on each stage", (FLIGHT, "min(p, plan.num_microbatches(job))"))
changed("GPipe", "all microbatches", (FLIGHT, "plan.num_microbatches(job)"))
changed("warm-up alone", "warm-up alone", (FLIGHT, "min(p - stage - 1, plan.num_microbatches(job))"))
changed("the other way round", "the last one fullest", (FLIGHT, "min(stage + 1, plan.num_microbatches(job))"))
changed("more than there are", "more than there are", (FLIGHT, "(p - stage)"))
changed("one more", "one too many", (FLIGHT, "min(p - stage + 1, plan.num_microbatches(job))"))
changed("one sequence", "one sequence", (NUMBERS, "job.num_tokens * job.width / plan.tensor"))
changed("no width", "no tokens", (NUMBERS, "tokens / plan.tensor"))
changed("no tokens", "no tokens", (NUMBERS, "plan.microbatch * job.width / plan.tensor"))
changed("layers added", "microbatches and layers added", ("in_flight * layers *", "(in_flight + layers) *"))
changed("one layer", "one layer", ("in_flight * layers *", "in_flight *"))
changed("all of the model's layers", "all layers", ("in_flight * layers *", "in_flight * job.num_layers *"))
changed("activations over replicas", "activations shared by replicas", (NUMBERS, NUMBERS + " / plan.data"))
changed("34 for each layer", "all layers again", (AGAIN, "(34 * layers if plan.recompute else 0)"))
changed("34 for each microbatch", "all microbatches again", (AGAIN, "(34 * in_flight if plan.recompute else 0)"))
changed("32 on top", "in place of its input", (AGAIN, "(32 if plan.recompute else 0)"))
changed("inputs alone", "no layer again", (AGAIN, "0"))
changed("recomputes nothing", "everything kept", ("(2 if plan.recompute else 34)", "34"), (AGAIN, "0"))
changed("the layer again whole", "again and not cut", (AGAIN, "(34 * plan.tensor if plan.recompute else 0)"))
changed("two bytes a number", "bytes taken for numbers", (NUMBERS, "2 * " + NUMBERS))
changed("activation_bytes for numbers", "bytes taken for numbers", (NUMBERS, "job.activation_bytes / plan.tensor"))
changed("over stages, too", "divided by stages again", (NUMBERS, NUMBERS + " / p"))
changed("whole activations", "whole activations", (NUMBERS, "tokens * job.width"))
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
WRONG.changed(
    "one in flight where layers run again", "one microbatch in flight",
    ("in_flight = min(p - stage, plan.num_microbatches(job))",
     "in_flight = 1 if plan.recompute else min(p - stage, plan.num_microbatches(job))"),
)  # fmt: skip
KEPT = "in_flight * layers * (2 if plan.recompute else 34) + (34 if plan.recompute else 0)"
WRONG.changed(
    "warm-up, and one on the last stage", "warm-up alone",
    ("min(p - stage, plan.num_microbatches(job))", "max(1, min(p - stage - 1, plan.num_microbatches(job)))"),
)  # fmt: skip
WRONG.changed(
    "34 on top in every plan", "a layer again in every plan",
    (KEPT, "in_flight * layers * (2 if plan.recompute else 34) + 34"),
)  # fmt: skip
WRONG.changed(
    "cuts only what is kept whole", "kept inputs not cut",
    ("job.width / plan.tensor\n", "job.width / (1 if plan.recompute else plan.tensor)\n"),
)  # fmt: skip
WRONG.changed(
    "replicas' microbatches", "all replicas' microbatches",
    ("in_flight = min(p - stage, plan.num_microbatches(job))",
     "in_flight = min(p - stage, plan.num_microbatches(job) * plan.data)"),
)  # fmt: skip
WRONG.changed(
    "as many as the batch has sequences", "sequences for microbatches",
    ("min(p - stage, plan.num_microbatches(job))", "min(p - stage, job.batch)"),
)  # fmt: skip
WRONG.changed(
    "34 for all that is in flight", "everything kept",
    (KEPT, KEPT.replace("(34 if plan.recompute", "(34 * in_flight * layers if plan.recompute")),
)  # fmt: skip
