"""Wrong answers to sequence_parallel, each a mistake that learners really make, and the mistake a check must name."""

# ruff: noqa: E501

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed

OWN = "return {}.chunk(dist.get_world_size(ctx.group), dim=1)[dist.get_rank(ctx.group)], None"
changed(
    "its own gradient", "gradient not reduced", ("return _my_tokens(gradient, ctx.group), None", OWN.format("gradient"))
)
changed(
    "a slice of its own",
    "not summed",
    ("return _my_tokens(x, group)", "return x.chunk(dist.get_world_size(group), dim=1)[dist.get_rank(group)].clone()"),
)
changed(
    "zeros for the others",
    "gradient of its own tokens only",
    (
        "return _all_tokens(gradient, ctx.group), None",
        "parts = [torch.zeros_like(gradient) for _ in range(dist.get_world_size(ctx.group))]\n"
        "        parts[dist.get_rank(ctx.group)] = gradient\n        return torch.cat(parts, 1), None",
    ),
)
changed("along the batch", "joined along the batch", ("return torch.cat(parts, dim=1)", "return torch.cat(parts)"))
changed("backwards", "in another order", ("return torch.cat(parts, dim=1)", "return torch.cat(parts[::-1], dim=1)"))
changed("not put back", "outside disturbed", ("        torch.set_rng_state(outside)\n", ""))
changed("a seed inside", "outside disturbed", ("        torch.set_rng_state(self.outside)\n", ""))
changed("one seed for all", "alike on all ranks", (" + dist.get_rank(group))", ")"))
changed(
    "started anew",
    "the same numbers again",
    (
        "        self.inside = torch.get_rng_state()\n        torch.set_rng_state(self.outside)",
        "        torch.set_rng_state(self.outside)",
    ),
)
changed(
    "any seed",
    "other numbers from one seed",
    ("torch.manual_seed(seed * 10_007 + dist.get_rank(group))", "torch.seed()"),
)
changed(
    "summed in place",
    "x was changed",
    ("return _my_tokens(x, group)", "dist.all_reduce(x.data, group=group)\n        return _my_tokens(x, group) / 1"),
)
changed("no Function", "nothing returned", ("return _Scatter.apply(x, group)", "return _my_tokens(x.detach(), group)"))
changed(
    "all-reduces, and cuts its tokens out", "whole sums travel",
    ("    mine = torch.empty_like(parts[0])\n    dist.reduce_scatter(mine, parts, group=group)\n    return mine\n",
     "    total = torch.cat(parts, dim=1)\n    dist.all_reduce(total, group=group)\n"
     "    return total.chunk(len(parts), dim=1)[dist.get_rank(group)].contiguous()\n"),
)  # fmt: skip
SEEDED = "torch.manual_seed(seed * 10_007 + dist.get_rank(group))"
changed("the rank alone", "one start for all seeds", (SEEDED, "torch.manual_seed(1 + dist.get_rank(group))"))
changed("seed times rank", "alike on all ranks", (SEEDED, "torch.manual_seed(seed * (1 + dist.get_rank(group)))"))
changed(
    "from the seed outside",
    "other numbers from one seed",
    (SEEDED, "torch.manual_seed(torch.initial_seed() + seed * 10_007 + dist.get_rank(group) + 1)"),
)
LEFT = "        self.inside = torch.get_rng_state()\n        torch.set_rng_state(self.outside)"
changed(
    "not put back after an error",
    "outside disturbed",
    (LEFT, "        if error[0] is not None:\n            return\n" + LEFT),
)
changed(
    "not kept after an error",
    "back to before an error",
    (LEFT, LEFT.replace("        self.inside", "        if error[0] is None:\n            self.inside")),
)
changed("returns True", "an error swallowed", (LEFT, LEFT + "\n        return True"))
changed(
    "a new seed at each with",
    "begins anew",
    (SEEDED, f"{SEEDED}\n        self.seed, self.count = torch.initial_seed(), 0"),
    (
        "        torch.set_rng_state(self.inside)\n",
        "        torch.manual_seed(self.seed + 10**9 * self.count)\n        self.count += 1\n",
    ),
)
changed("the mean", "mean instead of sum", ("    return mine\n", "    return mine / len(parts)\n"))
changed("tokens in turn", "in another order", ("torch.cat(parts, dim=1)", "torch.stack(parts, dim=2).flatten(1, 2)"))
changed(
    "scatter over all ranks", "group ignored", ("return _Scatter.apply(x, group)", "return _Scatter.apply(x, None)")
)
changed("gather over all ranks", "group ignored", ("return _Gather.apply(x, group)", "return _Gather.apply(x, None)"))
KEEPS = "        self.inside = torch.get_rng_state()\n"
changed("a state of the class", "one state for all", (KEEPS, KEEPS.replace("self", "OwnRandom")))
changed(
    "a state outside from when it was made",
    "outside disturbed",
    ("        self.outside = torch.get_rng_state()\n", ""),
    (
        "        torch.set_rng_state(outside)\n",
        "        torch.set_rng_state(outside)\n        self.outside = outside\n",
    ),
)
changed(
    "moved by the rank",
    "alike on all ranks",
    (SEEDED, "torch.manual_seed(seed)\n        torch.rand(dist.get_rank(group))"),
)
SCATTERS = "    dist.reduce_scatter(mine, parts, group=group)\n"
changed(
    "from the first rank",
    "one rank's x",
    (
        SCATTERS,
        "    first = dist.get_rank(group) == 0\n    dist.scatter(mine, parts if first else None, group=group, group_src=0)\n",
    ),
)
changed("the largest", "maximum instead of sum", (SCATTERS, SCATTERS.replace("group=", "op=dist.ReduceOp.MAX, group=")))
WRONG.right(
    "seed and rank of the world added",
    """
class OwnRandom:
    def __init__(self, seed, group=None):
        self.state = torch.Generator().manual_seed(1000 * seed + dist.get_rank()).get_state()

    def __enter__(self):
        self.state, self.before = None, (torch.get_rng_state(), torch.set_rng_state(self.state))[0]

    def __exit__(self, *error):
        self.state = torch.get_rng_state()
        torch.set_rng_state(self.before)
""",
)
WRONG.wrong(
    "a generator that nobody asks",
    "numbers of outside",
    """
class OwnRandom:
    def __init__(self, seed, group=None):
        self.generator = torch.Generator().manual_seed(10_007 * seed + dist.get_rank(group))

    def __enter__(self):
        return self.generator

    def __exit__(self, *error):
        pass
""",
)
