"""Wrong answers to linear_later, each a mistake that learners really make, and the mistake a check must name."""

# ruff: noqa: E501

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
REST = "            def rest() -> None:\n                rows = gradient.reshape(-1, gradient.shape[-1])\n"
PRODUCT = "rows.T @ entered.reshape(-1, entered.shape[-1])"
changed("computes it at once, adds it later", "computed at once, added later",
        (PRODUCT, "there"),
        (REST, f"            rows = gradient.reshape(-1, gradient.shape[-1])\n            there = {PRODUCT}\n\n            def rest() -> None:\n"))  # fmt: skip
changed("a frozen weight, too", "a gradient for a frozen one", ("if weight.requires_grad:", "if True:"))
HAS_BIAS = "if bias is not None and bias.requires_grad:"
changed("a frozen bias, too", "a gradient for a frozen one", (HAS_BIAS, "if bias is not None:"))
changed("a bias taken for granted", "no bias to ask", (HAS_BIAS, "if bias.requires_grad:"))
changed("the last gradient of the bias wins", "overwritten, not added",
        ("bias.grad = found if bias.grad is None else bias.grad + found", "bias.grad = found"))  # fmt: skip
LATER = "            later.append(rest)\n"
changed("a function for each", "another number of functions",
        (LATER, LATER + "            if bias is not None:\n                later.append(lambda: None)\n"))  # fmt: skip
changed("none where all is frozen", "another number of functions",
        (LATER, "            if weight.requires_grad or bias is not None and bias.requires_grad:\n    " + LATER))  # fmt: skip
changed("the bias at once", "weights' gradients at once",
        ("else None, None, None", "else None, None, gradient.reshape(-1, gradient.shape[-1]).sum(0) if bias is not None else None"),
        ("                if bias is not None and bias.requires_grad:\n", "                if False:\n"))  # fmt: skip
changed(
    "no bias",
    "the bias is not added",
    (
        "return nn.functional.linear(x, weight, bias)\n\n        @",
        "return nn.functional.linear(x, weight)\n\n        @",
    ),
)
X = "return gradient @ weight if ctx.needs_input_grad[0] else None, None, None"
changed("x later, too", "no gradient for x",
        (X, "return None, None, None"), (REST, REST + "                x.grad = gradient @ weight\n"))  # fmt: skip
WRONG.wrong("appends in forward", "put off in forward", """
def linear_later(x, weight, bias, later):
    gradients = []

    def rest():
        for gradient in gradients:
            rows = gradient.reshape(-1, gradient.shape[-1])
            if weight.requires_grad:
                found = rows.T @ x.detach().reshape(-1, x.shape[-1])
                weight.grad = found if weight.grad is None else weight.grad + found
            if bias is not None and bias.requires_grad:
                bias.grad = rows.sum(0) if bias.grad is None else bias.grad + rows.sum(0)

    class Later(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return nn.functional.linear(x, weight, bias)

        @staticmethod
        def backward(ctx, gradient):
            gradients.append(gradient)
            return gradient @ weight

    later.append(rest)
    return Later.apply(x)
""")  # fmt: skip
changed("adds to a gradient that is not there", "no gradient yet", (FOUND, "weight.grad += found"))
changed("adds in place to what is not there", "no gradient yet", (FOUND, "weight.grad.add_(found)"))
changed("x alone goes through autograd", "x needs no gradient",
        ("def forward(ctx, x, weight, bias):", "def forward(ctx, x):"),
        ("else None, None, None", "else None"),
        ("return Later.apply(x, weight, bias)", "return Later.apply(x)"))  # fmt: skip
changed("keeps the last function alone", "another number of functions", ("later.append(rest)", "later[:] = [rest]"))
changed("a list of its own", "another number of functions", ("later.append(rest)", "ctx.later = [*later, rest]"))
changed("autograd once more, from x", "the gradient of x again",
        ("            entered = ctx.saved_tensors[0].detach()", "            (entered,) = ctx.saved_tensors"),
        ("                rows = gradient.reshape(-1, gradient.shape[-1])\n", """\
                nn.functional.linear(entered, weight, bias).backward(gradient)

            def by_hand() -> None:
                rows = gradient.reshape(-1, gradient.shape[-1])
"""))  # fmt: skip
