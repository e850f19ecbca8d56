"""Wrong answers to two_operators, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed

GIVEN, BUILT = "return Enter.apply(x, group)", "return Leave.apply(x, group)"


def enter_by(forward: str, backward: str) -> tuple[tuple[str, str], ...]:
    """Return the changes that put another Function behind enter."""
    return ((GIVEN, "return Own.apply(x, group)"), ("def enter(", f"""class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return {forward}

    @staticmethod
    def backward(ctx, gradient):
        return {backward}, None


def summed(x, group):
    total = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=group)
    return total


def enter("""))  # fmt: skip


changed("identity both ways", "gradient not reduced", *enter_by("x.view_as(x)", "gradient"))
changed("both alike", "gradient times N", (BUILT, GIVEN.replace("x,", "Leave.apply(x, group),")))
changed("forward in the wrong one", "swapped", *enter_by("summed(x, group)", "summed(gradient, ctx.group)"))
changed("nothing leaves", "not summed", (BUILT, GIVEN))
changed(
    "reduced to one rank",
    "summed on one rank",
    ("dist.all_reduce(total, group=group)", "dist.reduce(total, group=group, group_dst=0)"),
)
changed(
    "backward divides",
    "gradient divided",
    ("        return gradient, None\n", "        return gradient / dist.get_world_size(ctx.group), None\n"),
    ("        total = x.clone(", "        ctx.group = group\n        total = x.clone("),
)
changed(
    "one gradient alone",
    "a gradient for each argument",
    ("        return gradient, None\n", "        return gradient\n"),
)
changed("the mean", "mean instead of sum", ("return total\n", "return total / dist.get_world_size(group)\n"))
changed("all ranks", "group ignored", ("dist.all_reduce(total, group=group)", "dist.all_reduce(total)"))
changed("backward forgets the group", "group ignored", *enter_by("x.view_as(x)", "summed(gradient, None)"))
changed(
    "in place",
    "x was changed",
    ("total = x.clone(memory_format=torch.contiguous_format)", "total = x.data"),
    ("return total", "return total.view_as(total)"),
)
WRONG.right(
    "a copy that autograd sees",
    """
def leave(x, group=None):
    total = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=group)  # autograd sees the copy alone, and its gradient is the sum's
    return total
""",
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
changed(
    "the gradient in place",
    "the gradient given was changed",
    *enter_by("x.view_as(x)", "summed_in_place(gradient, ctx.group)"),
    (
        "def enter(",
        """def summed_in_place(total, group):
    dist.all_reduce(total, group=group)
    return total


def enter(""",
    ),
)
changed(
    "a hook on x",
    "residual summed, too",
    (GIVEN, "x.register_hook(lambda gradient: added_up(gradient, group))\n    return x"),
    (
        "def enter(",
        """def added_up(gradient, group):
    total = gradient.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=group)
    return total


def enter(""",
    ),
)
WRONG.right(
    "a hook on a view",
    """
def enter(x, group=None):
    def added_up(gradient):
        total = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=group)
        return total

    entered = x.view_as(x)
    entered.register_hook(added_up)
    return entered
""",
)
changed(
    "from the first rank",
    "one rank's x",
    ("dist.all_reduce(total, group=group)", "dist.broadcast(total, group=group, group_src=0)"),
)
changed(
    "the largest",
    "maximum instead of sum",
    ("dist.all_reduce(total, group=group)", "dist.all_reduce(total, dist.ReduceOp.MAX, group=group)"),
)
changed(
    "backward multiplies",
    "gradient times N",
    ("        return gradient, None\n", "        return gradient * dist.get_world_size(ctx.group), None\n"),
    ("        total = x.clone(", "        ctx.group = group\n        total = x.clone("),
)
changed(
    "what all_reduce returns",
    "nothing returned",
    *enter_by("x.view_as(x)", "dist.all_reduce(gradient.clone(), group=ctx.group)"),
)
changed("the group first", "gradients in another order", ("return total, None", "return None, total"))
COPY = "total = x.clone(memory_format=torch.contiguous_format)\n        dist.all_reduce(total, group=group)"
TOTAL = "total = gradient.clone(memory_format=torch.contiguous_format)\n        dist.all_reduce(total, group=ctx.group)"
changed("multiplied by N", "N times its own", (COPY, "total = x * dist.get_world_size(group)"))
changed("the gradient multiplied by N", "N times its own", (TOTAL, "total = gradient * dist.get_world_size(ctx.group)"))
changed("the others' sum", "own part left out", ("return total\n\n", "return total - x\n\n"))
changed(
    "side by side",
    "shape lost",
    (
        COPY,
        "total = [torch.empty_like(x.contiguous()) for _ in range(dist.get_world_size(group))]\n"
        "        dist.all_gather(total, x.contiguous(), group=group)\n        total = torch.cat(total, -1)",
    ),
)
changed("no gradient behind leave", "nothing returned", ("return gradient, None", "return None, None"))
changed(
    "the group kept in the class",
    "one group for all calls",
    ("ctx.group = group", "Enter.group = group"),
    ("group=ctx.group", "group=Enter.group"),
)
changed(
    "sends x, too",
    "enter sends x",
    *enter_by("from_first(x, group)", "summed(gradient, ctx.group)"),
    (
        "def enter(",
        """def from_first(x, group):
    sent = x.clone(memory_format=torch.contiguous_format)
    dist.broadcast(sent, group=group, group_src=0)
    return sent


def enter(""",
    ),
)
changed(
    "nothing to add",
    "a rank stays away",
    (
        "        total = gradient.clone(",
        "        if not gradient.any():\n            return gradient, None\n        total = gradient.clone(",
    ),
)
WRONG.right(
    "the mean of equal gradients",
    """
class Leave(Leave):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        total = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx, gradient):  # every rank computes the same loss
        total = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=ctx.group)
        return total / dist.get_world_size(ctx.group), None


def leave(x, group=None):
    return Leave.apply(x, group)
""",
)
