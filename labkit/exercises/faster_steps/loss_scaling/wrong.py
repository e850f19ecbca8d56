"""Wrong answers to loss_scaling, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed


FINITE = "all(bool(gradient.isfinite().all()) for gradient in gradients)"
changed("the loss as it is", "the loss is not scaled", ("return loss * self.scale", "return loss * 1.0"))
changed(
    "isinf",
    "not a number goes unnoticed",
    (FINITE, "not any(bool(g.isinf().any()) for g in gradients)"),
)
changed("isnan", "infinity goes unnoticed", (FINITE, "not any(bool(g.isnan().any()) for g in gradients)"))
changed(
    "the first group",
    "only the first parameter is looked at",
    (FINITE, FINITE.replace("in gradients", "in gradients[:1]")),
)
changed("does not divide", "gradients are not unscaled", ("scaled /= self.scale", "pass"))
changed("divides twice", "unscaled twice", ("scaled /= self.scale", "scaled /= self.scale**2"))
changed("never down", "the scale is not halved", ("            self.scale /= 2\n", ""))
changed("never up", "the scale never grows", ("            self.scale *= 2\n", ""))
changed("up each time", "the scale grows too early", ("self.good_steps == self.growth_interval", "True"))
changed(
    "does not begin anew",
    "good steps are counted across a bad one",
    ("            self.scale /= 2\n            self.good_steps = 0\n", "            self.scale /= 2\n"),
)
changed(
    "says nothing",
    "does not say it",
    ("            self.good_steps = 0\n        return True\n", "            self.good_steps = 0\n"),
    ("            return False\n", "            return None\n"),
)
changed(
    "every parameter has a gradient",
    "a parameter without a gradient",
    (" if each.grad is not None", ""),
)
changed(
    "divides by the next scale",
    "unscaled with the next scale",
    ("scaled /= self.scale", "scaled /= self.scale * (2 if self.good_steps + 1 == self.growth_interval else 1)"),
)
changed(
    "divides the first group",
    "only the first group is unscaled",
    ("for scaled in gradients", "for scaled in gradients[:1]"),
)
changed("the test turned round", "a good step is skipped", (FINITE, f"not {FINITE}"))
changed("scales and returns nothing", "nothing is scaled", ("return loss * self.scale", "loss * self.scale"))
changed("trebles", "another scale", ("self.scale *= 2", "self.scale *= 3"))
