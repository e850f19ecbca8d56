"""Wrong answers to parallel_vocabulary, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed

changed("no leave", "not summed", ("return leave(found * here[..., None], group)", "return found * here[..., None]"))
changed("no mask", "every rank adds a row", ("found * here[..., None]", "found"))
changed(
    "clamped, no mask",
    "every rank adds a row",
    ("found * here[..., None]", "found"),
    ("torch.where(here, tokens - mine.start, 0), rows)", "(tokens - mine.start).clamp(0, len(rows) - 1), rows)"),
)
changed(
    "modulo", "number not shifted", ("torch.where(here, tokens - mine.start, 0), rows)", "tokens % len(rows), rows)")
)
changed("the mean of all", "ignored targets count", ("* counts).sum() / counts.sum()", "* counts).mean()"))
changed(
    "no mask of targets",
    "ignored targets count",
    ("((total.log() - right) * counts).sum() / counts.sum()", "(total.log() - right).mean()"),
)
changed(
    "its own exponentials",
    "softmax of its own part",
    ("total = leave(shifted.exp().sum(-1), group)", "total = shifted.exp().sum(-1)"),
)
changed("no maximum", "exponentials overflow", ("shifted = logits - largest[:, None]", "shifted = logits"))
WRONG.changed(
    "whole logits",
    "logits gathered",
    (
        "    largest = logits.detach().amax(-1)\n",
        """    whole = logits.new_zeros(len(logits), vocabulary)
    whole[:, mine] = logits
    return functional.cross_entropy(leave(whole, group), targets, ignore_index=IGNORED)
    largest = logits.detach().amax(-1)
""",
    ),
)
changed(
    "entered again",
    "gradient reduced again",
    ("total = leave(shifted", "shifted = Again.apply(shifted, group)\n    total = leave(shifted"),
    ("def embed(", """class Again(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * dist.get_world_size(ctx.group), None


def embed("""))  # fmt: skip
changed(
    "in place",
    "logits were changed",
    ("shifted = logits - largest[:, None]", "logits.data.sub_(largest[:, None])\n    shifted = logits"),
)
changed("without autograd", "nothing returned", ("return leave(found", "return leave(found.detach()"))
