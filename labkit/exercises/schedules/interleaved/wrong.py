"""Wrong answers to interleaved, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed


changed("all microbatches through each chunk", "chunk after chunk",
        ("chunk, microbatch = place // num_stages, group * num_stages + place % num_stages", "chunk, microbatch = divmod(number, num_microbatches)"))  # fmt: skip  # noqa: E501
changed(
    "backward begins at chunk 0",
    "backward with the first chunk first",
    ("num_chunks - 1 - chunk", "chunk"),
)
changed(
    "1F1B's warm-up",
    "the warm-up of plain 1F1B",
    ("2 * (num_stages - 1 - stage) + (num_chunks - 1) * num_stages", "num_stages - 1 - stage"),
)
changed("all forwards first", "all forwards first", ("warmup = min(", "warmup = max("))
changed("no cool-down", "work left out", (" + backwards[total - warmup :]", ""))
