"""Wrong answers to two_operators, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed

changed(
    "identity both ways", "gradient not reduced", ("return _sum(gradient, ctx.group), None", "return gradient, None")
)
changed("reduced both ways", "gradient reduced again", ("return gradient, None", "return _sum(gradient, None), None"))
changed("forward in the wrong one", "swapped", ("return x.view_as(x)", "return _sum(x, group)"))
changed("nothing leaves", "not summed", ("return _Leave.apply(x, group)", "return _Enter.apply(x, group)"))
changed("the mean", "mean instead of sum", ("return total", "return total / dist.get_world_size(group)"))
changed("all ranks", "group ignored", ("dist.all_reduce(total, group=group)", "dist.all_reduce(total)"))
changed(
    "backward forgets the group",
    "group ignored",
    ("return _sum(gradient, ctx.group), None", "return _sum(gradient, None), None"),
)
changed(
    "in place",
    "x was changed",
    ("return _sum(x, group)", "dist.all_reduce(x.data, group=group)\n        return x.view_as(x)"),
)
WRONG.wrong(
    "no Function",
    "nothing returned",
    """
def leave(x, group=None):
    total = x.detach().clone()
    dist.all_reduce(total, group=group)
    return total
""",
)
