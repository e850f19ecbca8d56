"""Wrong answers to parallel_vocabulary, each a mistake that learners really make, and the mistake a check must name."""

# ruff: noqa: E501

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
    "what was given is changed",
    ("shifted = logits - largest[:, None]", "logits.data.sub_(largest[:, None])\n    shifted = logits"),
)
changed("without autograd", "nothing returned", ("return leave(found", "return leave(found.detach()"))

LARGEST = "dist.all_reduce(largest, dist.ReduceOp.MAX, group=group)"
RIGHT = "right = leave(shifted.gather(-1, place[:, None])[:, 0] * here, group)"
changed(
    "embed over all ranks",
    "group ignored",
    ("return leave(found * here[..., None], group)", "return leave(found * here[..., None], None)"),
)
changed(
    "only too far behind",
    "every rank adds a row",
    (
        "functional.embedding(torch.where(here, tokens - mine.start, 0), rows)",
        "rows[(tokens - mine.start).clamp(-len(rows), len(rows) - 1)] * (tokens < mine.stop)[..., None]",
    ),
    ("found * here[..., None]", "found"),
)
changed(
    "the table gathered",
    "embedding gathered",
    (
        "    found = functional.embedding(torch.where(here, tokens - mine.start, 0), rows)\n"
        "    return leave(found * here[..., None], group)",
        "    table = rows.new_zeros(vocabulary, rows.shape[1])\n    table[mine] = rows\n"
        "    return functional.embedding(tokens, leave(table, group))",
    ),
)
changed("targets above 0", "word 0 left out", ("counts = targets != IGNORED", "counts = targets > 0"))
changed("its own maximum", "a maximum on each rank", (LARGEST, "pass"))
changed("maximum of all groups", "exponentials vanish", (LARGEST, LARGEST.replace(", group=group", "")))
changed(
    "one maximum for all tokens",
    "exponentials vanish",
    (LARGEST, f"{LARGEST}\n    largest = largest.max().expand_as(largest)"),
)
changed("no mask, the first word", "every rank adds a logit", (RIGHT, RIGHT.replace(" * here", "")))
changed(
    "no mask, clamped",
    "every rank adds a logit",
    (RIGHT, RIGHT.replace(" * here", "")),
    (
        "place = torch.where(here, targets - mine.start, 0)",
        "place = (targets - mine.start).clamp(0, logits.shape[1] - 1)",
    ),
)
changed("masked behind only", "every rank adds a logit", (RIGHT, RIGHT.replace("here", "(targets < mine.stop)")))
TOTAL = "total = leave(shifted.exp().sum(-1), group)"
ALONE = ((TOTAL, "total = shifted.exp().sum(-1)"), (RIGHT, RIGHT.replace("leave(", "").replace(", group)", "")))
MEAN = "return ((total.log() - right) * counts).sum() / counts.sum()"
changed("no leave in the loss", "nothing summed", *ALONE)
changed("sum of losses", "losses of parts", *ALONE, (MEAN, MEAN.replace("return ", "return leave(") + ", group)"))
changed(
    "mean of losses",
    "losses of parts",
    *ALONE,
    (LARGEST, "pass"),
    (MEAN, MEAN.replace("return ", "return leave(") + ", group) / dist.get_world_size(group)"),
)
changed("the target's logit as it is", "maximum not subtracted once", (RIGHT, RIGHT.replace("shifted", "logits")))
changed(
    "subtracted on every rank",
    "maximum not subtracted once",
    (RIGHT, RIGHT.replace("shifted", "logits").replace("* here", "* here - largest")),
)
changed(
    "a maximum with a gradient",
    "gradient through the maximum",
    (LARGEST, f"{LARGEST}\n    own = logits.amax(-1)\n    largest = own + (largest - own).detach()"),
)
changed(
    "detached logits",
    "nothing returned",
    ("shifted = logits - largest[:, None]", "shifted = logits.detach() - largest[:, None]"),
)
HERE = "here = (tokens >= mine.start) & (tokens < mine.stop)"
CLAMPED = (
    "torch.where(here, tokens - mine.start, 0), rows)",
    "(tokens - mine.start).clamp(0, len(rows) - 1), rows)",
)
changed("the next rank's first word, too", "another end of a part", (HERE, HERE.replace("< ", "<= ")), CLAMPED)
changed(
    "its first word left out",
    "another end of a part",
    (HERE, HERE.replace("tokens >= mine.start", "(tokens > mine.start) | (mine.start + tokens == 0)")),
)
changed(
    "its first target left out",
    "another end of a part",
    ("here = (targets >= mine.start)", "here = (targets > mine.start)"),
)
changed(
    "shifted in place",
    "what was given is changed",
    ("torch.where(here, tokens - mine.start, 0), rows)", "torch.where(here, tokens.sub_(mine.start), 0), rows)"),
)
changed("no leave of the logit", "the target's logit not summed", ALONE[1])
changed("no mean", "sum instead of mean", (MEAN, MEAN.replace(" / counts.sum()", "")))
changed("turned round", "wrong sign", (MEAN, MEAN.replace("total.log() - right", "right - total.log()")))
changed(
    "the largest added up",
    "exponentials vanish",
    (LARGEST, LARGEST.replace("MAX", "SUM")),
)
changed("subtracts logits from the largest", "logits with the other sign",
        ("logits - largest[:, None]", "largest[:, None] - logits"))  # fmt: skip
changed("adds the target's logit", "the target's logit added", ("total.log() - right", "total.log() + right"))
TWICE_MORE = "    for _ in range(2):\n        dist.all_reduce(largest.clone(), group=group)"
changed("five numbers for each target", "logits gathered", (LARGEST, f"{LARGEST}\n{TWICE_MORE}"))
changed("adds the mask", "added, not multiplied", ("found * here[..., None]", "found + here[..., None]"))

EQUAL = "    mine = my_part(vocabulary, group)\n    here = (tokens"
changed(
    "as long as N divides", "parts of equal length",
    (EQUAL, "    size = vocabulary // dist.get_world_size(group)\n"
     "    mine = slice(dist.get_rank(group) * size, (dist.get_rank(group) + 1) * size)\n    here = (tokens"),
)  # fmt: skip
changed(
    "as long as its own", "parts of equal length",
    (EQUAL, "    start = dist.get_rank(group) * len(rows)\n    mine = slice(start, start + len(rows))\n    here = (tokens"),
    ("torch.where(here, tokens - mine.start, 0)", "torch.where(here, tokens - mine.start, 0)"),
)  # fmt: skip
FOUND = "return leave(found * here[..., None], group)"
changed("the mean of rows", "mean instead of sum", (FOUND, f"{FOUND} / dist.get_world_size(group)"))
changed("the loss shared out", "mean instead of sum", (MEAN, f"{MEAN} / dist.get_world_size(group)"))
changed(
    "counts its own targets",
    "its own targets count",
    ("counts = targets != IGNORED", "counts = (targets != IGNORED) & here"),
)
changed("the mean of exponentials", "mean of exponentials", ("total.log()", "(total / vocabulary).log()"))
changed("clamps large logits", "logits are clamped", ("logits - largest[:, None]", "logits.clamp(max=80.0)"))
changed(
    "enters logits",
    "logits are entered",
    ("    shifted = logits", "    logits = enter(logits, group)\n    shifted = logits"),
)
changed(
    "every target counts", "ignored targets count", ("counts = targets != IGNORED", "counts = torch.ones_like(targets)")
)
OWN_LARGEST = "logits.detach().amax(-1)"
changed("a maximum that autograd sees", "not a number", (OWN_LARGEST, "logits.amax(-1)"))
BEGIN = "    largest = logits.detach()"
NONE_HERE = "    if not ((targets >= mine.start) & (targets < mine.stop)).any():\n        return logits.sum() * 0\n"
changed("no target here", "a rank stays away", (BEGIN, NONE_HERE + BEGIN))
WHOLE_MEAN = "    counts = targets != IGNORED\n    return ((total.log() - right) * counts).sum() / counts.sum()"
changed(
    "a mean of its own targets",
    "means of parts",
    (
        WHOLE_MEAN,
        "    own = ((total.log() - right) * here).sum() / here.sum().clamp(min=1)\n    return leave(own, group)",
    ),
)
changed(
    "losses leave",
    "softmax of its own targets",
    (RIGHT, "right = shifted.gather(-1, place[:, None])[:, 0]"),
    (WHOLE_MEAN, "    return leave(((total.log() - right) * here).sum() / (targets != IGNORED).sum(), group)"),
)
BY_MAXIMUM = "whole = right.detach().clone()\n    dist.all_reduce(whole, dist.ReduceOp.MAX, group=group)\n"
changed(
    "the target's logit by a maximum",
    "-inf in a sum",
    (
        RIGHT,
        'right = shifted.gather(-1, place[:, None])[:, 0].masked_fill(~here, float("-inf"))\n    '
        f"{BY_MAXIMUM}    right = torch.where(here, right, whole)",
    ),
)
changed(
    "a maximum with zeros",
    "the target's logit not summed",
    (
        RIGHT,
        "right = shifted.gather(-1, place[:, None])[:, 0] * here\n    "
        f"{BY_MAXIMUM}    right = torch.where(here, right, whole)",
    ),
)
changed(
    "a backward of its own",
    "the gradient given is ignored",
    (
        WHOLE_MEAN,
        """    counts = targets != IGNORED
    loss = (((total.log() - right) * counts).sum() / counts.sum()).detach()
    wanted = functional.one_hot(place, logits.shape[1]) * here[:, None]
    slope = ((shifted.exp() / total[:, None]).detach() - wanted) * counts[:, None] / counts.sum()
    return Loss.apply(logits, loss, slope)


class Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, loss, slope):
        ctx.save_for_backward(slope)
        return loss.clone()

    @staticmethod
    def backward(ctx, gradient):
        return ctx.saved_tensors[0], None, None""",
    ),
)
ROWS = "0), rows)"
changed("rows entered", "rows are entered", (ROWS, "0), enter(rows, group))"))
changed("row 0 for padding", "a row without a gradient", (ROWS, "0), rows, padding_idx=0)"))
changed(
    "a sum that autograd does not see",
    "half of the gradient",
    (
        "total = leave(shifted.exp().sum(-1), group)",
        "total = shifted.exp().sum(-1).detach()\n    dist.all_reduce(total, group=group)",
    ),
)
changed(
    "a target's logit that autograd does not see",
    "half of the gradient",
    (
        RIGHT,
        "right = (shifted.gather(-1, place[:, None])[:, 0] * here).detach()\n    dist.all_reduce(right, group=group)",
    ),
)
changed(
    "all losses over its own targets",
    "its own targets count",
    (".sum() / counts.sum()", ".sum() / here.sum().clamp(min=1)"),
)
