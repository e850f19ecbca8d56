"""Wrong answers to best_microbatches, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed


BEST = "return min(range(1, num_samples + 1), key=lambda count: step_seconds(num_stages, count, batch_seconds, overhead_s))"  # noqa: E501
changed("as many as possible", "as many as there are samples", (BEST, "return num_samples"))
changed("four times the stages", "the rule of thumb", (BEST, "return min(4 * num_stages, num_samples)"))
changed(
    "one number too few",
    "the last number left out",
    ("range(1, num_samples + 1)", "range(1, max(num_samples, 2))"),
)
changed("returns the time", "the time instead of the number",
        (BEST, "return min(step_seconds(num_stages, m, batch_seconds, overhead_s) for m in range(1, num_samples + 1))"))  # fmt: skip  # noqa: E501
changed("prints", "returns nothing", (BEST, BEST.replace("return ", "print(") + ")"))
changed(
    "where the derivative is zero",
    "the square root alone",
    (BEST, 'return round(((num_stages - 1) * batch_seconds / overhead_s) ** 0.5) if overhead_s else float("inf")'),
)
