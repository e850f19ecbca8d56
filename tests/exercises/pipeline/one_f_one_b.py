"""Wrong answers to one_f_one_b, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from tests.exercises.wrong_answer import WrongAnswers

WRONG = WrongAnswers(__name__)
changed = WRONG.changed


changed(
    "GPipe again",
    "that is GPipe",
    (
        "warmup = min(num_stages - 1 - stage, num_microbatches)",
        "return gpipe(stage, num_stages, num_microbatches)\n    warmup = 0",
    ),
)
changed(
    "no limit",
    "warm-up not limited",
    ("min(num_stages - 1 - stage, num_microbatches)", "num_stages - 1 - stage"),
)
changed("P - s", "warm-up one too long", ("num_stages - 1 - stage, ", "num_stages - stage, "))
changed(
    "P - 2 - s",
    "warm-up one too short",
    ("min(num_stages - 1 - stage, num_microbatches)", "max(min(num_stages - 2 - stage, num_microbatches), 0)"),
)
changed("P - 1 everywhere", "the same warm-up everywhere", ("num_stages - 1 - stage, ", "num_stages - 1, "))
changed("the stage's number", "the warm-up of the other end", ("num_stages - 1 - stage, ", "stage, "))
changed(
    "no cool-down",
    "cool-down forgotten",
    ("range(num_microbatches - warmup, num_microbatches)", "range(0)"),
)
changed("backward first in each pair", "backward before forward",
        ("        schedule += forward_of(stage, num_stages, microbatch)\n        schedule += backward_of(stage, num_stages, microbatch - warmup)\n",  # noqa: E501
         "        schedule += backward_of(stage, num_stages, microbatch - warmup)\n"
         "        schedule += forward_of(stage, num_stages, microbatch)\n"))  # fmt: skip
