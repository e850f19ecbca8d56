"""Wrong answers to clipped_shards, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed
SUM = "    dist.all_reduce(squares, group=group)\n    norm = squares.sqrt()\n"
ADD = "squares += gradient.float().square().sum()"
NORMS = "squares += gradient.float().norm()"
ZERO = "    squares = torch.zeros(())\n"
STACK = "    squares = torch.stack([each.norm() for each in gradients]).square().sum()\n"
SCALE = "gradient.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))"

changed("forgets the others", "own norm", ("    dist.all_reduce(squares, group=group)\n", ""))
changed("adds norms", "norms added", (SUM, "    norm = squares.sqrt()\n    dist.all_reduce(norm, group=group)\n"))
changed("adds norms of tensors", "norms added", (ADD, NORMS), ("squares.sqrt()", "squares"))
changed(
    "adds norms in a rank", "norms added",
    (ADD, NORMS), ("    dist.all_reduce", "    squares = squares.square()\n    dist.all_reduce"),
)  # fmt: skip
changed(
    "asks everybody", "ranks of other groups", ("dist.all_reduce(squares, group=group)", "dist.all_reduce(squares)")
)
changed("takes no root", "no root", ("norm = squares.sqrt()", "norm = squares"))
changed("squares in float16", "squares overflow", (ADD, "squares += gradient.square().sum()"))
changed(
    "returns the norm of what is clipped", "norm afterwards",
    ("    return norm\n", "    return norm.clamp(max=max_norm)\n"),
)  # fmt: skip
changed("scales copies", "not in place", (SCALE, "gradient = gradient * (max_norm / (norm + 1e-6)).clamp(max=1.0)"))
changed("scales short ones", "always scaled", (SCALE, "gradient.mul_(max_norm / (norm + 1e-6))"))
changed(
    "clips each tensor", "each by its own norm",
    (SCALE, "gradient.mul_((max_norm / (gradient.float().norm() + 1e-6)).clamp(max=1.0))"),
)  # fmt: skip
changed(
    "leaves where there is nothing", "a rank stays away",
    (ZERO, "    if not gradients:\n        return torch.zeros(())\n" + ZERO),
)  # fmt: skip
changed(
    "stacks nothing", "nothing to stack",
    (ZERO, ""),
    (f"    for gradient in gradients:\n        {ADD}\n", STACK),
)  # fmt: skip
changed("averages", "squares averaged", ("squares.sqrt()", "(squares / dist.get_world_size(group)).sqrt()"))
changed("makes all short", "max_norm ignored", ("((max_norm /", "((1 /"))
changed("cuts elements off", "elements cut off", (SCALE, "gradient.clamp_(-max_norm, max_norm)"))
WRONG.right(
    "norms squared, one tensor at a time, and torch's foreach",
    """def clip_by_global_norm(gradients, max_norm, group=None):
    squares = sum((torch.linalg.vector_norm(each, dtype=torch.float32) ** 2 for each in gradients), torch.zeros(1))
    dist.all_reduce(squares, op=dist.ReduceOp.SUM, group=group)
    norm = squares[0] ** 0.5
    if norm > max_norm:
        for each in gradients:
            each *= max_norm / norm.item()
    return norm
""",
)
changed(
    "norms of tensors in their dtype",
    "computed in the gradients' dtype",
    (ADD, "squares += gradient.norm().float().square()"),
)
changed(
    "divides by a norm of zero", "divided by zero",
    (SCALE, "gradient.mul_(min(1.0, max_norm / norm.item()))"),
)  # fmt: skip
changed(
    "the larger of both by the norm", "divided by zero",
    (SCALE, "gradient.mul_(torch.minimum(norm, torch.tensor(max_norm)) / norm)"),
)  # fmt: skip
REDUCE = "dist.all_reduce(squares, group=group)"
changed(
    "the largest norm", "the largest of the ranks", (REDUCE, "dist.all_reduce(squares, dist.ReduceOp.MAX, group=group)")
)
changed("the norm in their dtype", "computed in the gradients' dtype",
    ("    return norm\n", "    return norm.to(gradients[0].dtype) if gradients else norm\n"),
)  # fmt: skip
changed("divides by squares", "divided by the square", (SCALE, SCALE.replace("norm + ", "squares + ")))
changed(
    "the mean of all squares",
    "squares averaged",
    (
        "    norm = squares.sqrt()\n",
        "    count = torch.tensor(float(sum(each.numel() for each in gradients)))\n"
        "    dist.all_reduce(count, group=group)\n    norm = (squares / count).sqrt()\n",
    ),
)
