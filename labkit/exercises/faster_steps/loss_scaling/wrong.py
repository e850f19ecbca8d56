"""Wrong answers to loss_scaling, each a mistake that learners really make, and the mistake a check must name."""

# ruff: noqa: E501

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
SKIPS = "            self.good_steps = 0\n            return False"
changed(
    "the count goes on",
    "the count does not start again",
    ("            self.scale *= 2\n            self.good_steps = 0\n", "            self.scale *= 2\n"),
)
changed(
    "what overflowed becomes zero",
    "stepped all the same",
    (
        SKIPS,
        "            self.good_steps = 0\n            for each in gradients:\n                each.nan_to_num_(0.0, 0.0, 0.0)\n            optimizer.step()\n            return False",
    ),
)
changed(
    "steps and says no",
    "stepped all the same",
    ("            return False", "            optimizer.step()\n            return False"),
)
changed(
    "looks at the loss",
    "infinity goes unnoticed",
    ("        return loss * self.scale", "        self.loss = loss * self.scale\n        return self.loss"),
    (FINITE, "bool(self.loss.isfinite())"),
)
changed("never below 1", "the scale is not halved", ("self.scale /= 2", "self.scale = max(1.0, self.scale / 2)"))
changed(
    "doubles after every good step from then on",
    "the scale grows too early",
    ("self.good_steps == self", "self.good_steps >= self"),
    ("            self.scale *= 2\n            self.good_steps = 0\n", "            self.scale *= 2\n"),
)
changed(
    "halves the first scale",
    "the scale is not halved",
    ("self.scale /= 2", "self.scale = self.first / 2"),
    ("        self.scale = scale\n", "        self.scale = self.first = scale\n"),
)
changed(
    "says whether it was skipped",
    "does not say it",
    ("return False", "return not finite"),
    ("return True", "return not finite"),
)
changed(
    "divides copies",
    "gradients are not unscaled",
    ("for scaled in gradients", "for scaled in [each.clone() for each in gradients]"),
)
changed("divides the loss", "the loss is not scaled", ("loss * self.scale", "loss / self.scale"))
WRONG.right(
    "zeroes what it skips",
    """
class LossScaler:
    def __init__(self, scale=2.0**16, growth_interval=2000):
        self.scale, self.interval, self.good = scale, growth_interval, 0

    def scaled(self, loss):
        return loss * self.scale

    def step(self, optimizer):
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        for gradient in gradients:
            gradient.mul_(1 / self.scale)
        if not all(torch.isfinite(gradient).all() for gradient in gradients):
            for gradient in gradients:
                gradient.zero_()
            self.scale, self.good = self.scale / 2, 0
            return False
        optimizer.step()
        self.good += 1
        if self.good % self.interval == 0:
            self.scale *= 2
        return True
""",
)
changed("writes into the loss", "the loss itself is changed",
        ("        return loss * self.scale\n", "        loss *= self.scale\n        return loss\n"))  # fmt: skip
changed("the loss as a number", "the scaled loss has no graph",
        ("return loss * self.scale\n", "return torch.tensor(loss.item() * self.scale, requires_grad=True)\n"))  # fmt: skip
changed("divides copies", "gradients are not unscaled", ("scaled /= self.scale", "scaled = scaled / self.scale"))
changed("any entry will do", "not every entry is looked at", ("isfinite().all()", "isfinite().any()"))
changed("looks at the last one", "not every entry is looked at",
        ("        finite = all(bool(gradient.isfinite().all()) for gradient in gradients)\n",
         "        for gradient in gradients:\n            finite = bool(gradient.isfinite().all())\n"))  # fmt: skip
changed("leaves out what overflowed", "one parameter alone is skipped",
        ("        finite = all(bool(gradient.isfinite().all()) for gradient in gradients)\n",
         "        finite = True\n"
         "        for group in optimizer.param_groups:\n"
         "            for each in group['params']:\n"
         "                if each.grad is not None and not each.grad.isfinite().all():\n"
         "                    each.grad = None\n"))  # fmt: skip
changed("asks the sum", "a good step is skipped", ("isfinite().all()", "sum().isfinite()"))
changed("asks the norm", "a good step is skipped", ("isfinite().all()", "norm().isfinite()"))
changed("no more than at first", "the scale never grows",
        ("            self.scale *= 2\n", "            self.scale = min(2 * self.scale, 2.0**16)\n"))  # fmt: skip
changed("looks at the parameters", "infinity goes unnoticed",
        ("gradient.isfinite().all()) for gradient in gradients",
         "each.isfinite().all()) for group in optimizer.param_groups for each in group['params']"))  # fmt: skip
changed("halves for each", "the scale is not halved",
        ("self.scale /= 2", "self.scale /= 2 ** sum(not bool(each.isfinite().all()) for each in gradients)"))  # fmt: skip
changed("steps with what it cleared", "stepped all the same",
        ("            return False\n", "            optimizer.zero_grad()\n            optimizer.step()\n            return False\n"))  # fmt: skip
