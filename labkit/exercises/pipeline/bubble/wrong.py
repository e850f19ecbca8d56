"""Wrong answers to bubble, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed


BUBBLE = "return (num_stages - 1) / (num_microbatches + num_stages - 1)"
SECONDS = "return (num_microbatches + num_stages - 1) * (batch_seconds / num_microbatches + overhead_s)"
changed("over the working time", "waiting over working time",
        (BUBBLE, "return (num_stages - 1) / num_microbatches"))  # fmt: skip
changed("P turns", "the last stage does not wait so long",
        (BUBBLE, "return num_stages / (num_microbatches + num_stages)"))  # fmt: skip
changed(
    "efficiency",
    "the share of work",
    (BUBBLE, "return num_microbatches / (num_microbatches + num_stages - 1)"),
)
changed(
    "no bubble in the time",
    "bubble forgotten",
    ("(num_microbatches + num_stages - 1) * (batch", "num_microbatches * (batch"),
)
changed("overhead once", "overhead counted once",
        (SECONDS, "return (num_microbatches + num_stages - 1) * batch_seconds / num_microbatches + overhead_s"))  # fmt: skip  # noqa: E501
changed("overhead M times", "overhead for work alone",
        (SECONDS, "return (num_microbatches + num_stages - 1) * batch_seconds / num_microbatches + num_microbatches * overhead_s"))  # fmt: skip  # noqa: E501
changed("a whole batch a turn", "whole batch in each turn", ("batch_seconds / num_microbatches", "batch_seconds"))
changed(
    "P turns",
    "P turns of waiting",
    ("(num_microbatches + num_stages - 1) * (batch", "(num_microbatches + num_stages) * (batch"),
)
changed("prints", "returns nothing", (SECONDS, SECONDS.replace("return ", "print(") + ")"))
changed(
    "two ramps beside one pass",
    "forward and backward wait apart",
    ("(num_stages - 1) / (num_microbatches + num_stages - 1)",
     "2 * (num_stages - 1) / (num_microbatches + 2 * (num_stages - 1))"),
)  # fmt: skip
changed(
    "two ramps in the time",
    "two ramps beside one pass",
    ("(num_microbatches + num_stages - 1) * (batch", "(num_microbatches + 2 * (num_stages - 1)) * (batch"),
)
changed("overhead left out", "overhead left out", (" + overhead_s", ""))
changed(
    "the batch over the stages",
    "the batch shared by the stages",
    ("batch_seconds / num_microbatches", "batch_seconds / num_microbatches / num_stages"),
)
changed(
    "one microbatch after the other",
    "no pipeline at all",
    ("(num_microbatches + num_stages - 1) * (batch", "num_microbatches * num_stages * (batch"),
)
changed("the bubble of one stage", "no pipeline at all", (BUBBLE, "return 1 - 1 / num_stages"))
changed(
    "waiting of all stages",
    "the waiting of all stages together",
    (BUBBLE, "return num_stages * (num_stages - 1) / (num_microbatches + num_stages - 1)"),
)
changed(
    "M and P turns", "a turn too many in all", (BUBBLE, "return (num_stages - 1) / (num_microbatches + num_stages)")
)
changed(
    "three turns a microbatch, one ramp",
    "the waiting of forward alone",
    (BUBBLE, "return (num_stages - 1) / (3 * num_microbatches + num_stages - 1)"),
)
changed("twice for backward", "backward counted again", (SECONDS, SECONDS.replace("return ", "return 2 * ")))
changed("overhead each way", "overhead counted again", ("+ overhead_s)", "+ 2 * overhead_s)"))
TURNS = "(num_microbatches + num_stages - 1) * batch_seconds / num_microbatches"
changed(
    "every stage's overhead",
    "the overhead of all stages",
    (SECONDS, f"return {TURNS} + num_stages * num_microbatches * overhead_s"),
)
WORK = "(batch_seconds + num_microbatches * overhead_s)"
changed(
    "work times 1 + bubble",
    "the bubble on top",
    (SECONDS, f"return {WORK} * (1 + bubble_share(num_stages, num_microbatches))"),
)
changed(
    "all stages one after another",
    "the time of all stages together",
    (SECONDS, f"return num_stages * {TURNS} + num_microbatches * overhead_s"),
)
changed("in per cent", "a share in per cent", (BUBBLE, BUBBLE.replace("return ", "return 100 * ")))
changed("divides whole numbers", "divided without a rest", (BUBBLE, BUBBLE.replace(" / ", " // ")))
changed(
    "the other way round", "stages for microbatches", (BUBBLE, BUBBLE.replace("(num_stages -", "(num_microbatches -"))
)
changed("half for forward", "half of the batch's time", ("batch_seconds / num_micro", "batch_seconds / 2 / num_micro"))
