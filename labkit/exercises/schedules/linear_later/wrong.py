"""Wrong answers to linear_later, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed

FOUND = "weight.grad = found if weight.grad is None else weight.grad + found"
changed("the layer does all at once", "weights' gradients at once", ("later.append(rest)", "rest()"))
changed("the last gradient wins", "overwritten, not added", (FOUND, "weight.grad = found"))
changed(
    "nothing for x",
    "no gradient for x",
    ("return gradient @ weight if ctx.needs_input_grad[0] else None", "return None"),
)
changed("rows as they are", "rows not joined",
        ("rows = gradient.reshape(-1, gradient.shape[-1])", "rows = gradient"),
        ("rows.T @ entered.reshape(-1, entered.shape[-1])", "rows.transpose(-1, -2) @ entered"))  # fmt: skip
