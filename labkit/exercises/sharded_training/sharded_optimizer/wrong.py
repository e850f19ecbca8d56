"""Wrong answers to sharded_optimizer, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed
GATHER = "start_gather(list(self.shards.values()), list(self.shards))()"

changed("never gathers", "nothing moves", (GATHER, "pass"))
changed(
    "writes its own shard back",
    "only the own shard",
    (
        GATHER,
        "r = dist.get_rank()\n        for p, s in self.shards.items():\n            flat = p.data.view(-1)\n"
        "            part = flat[r * len(s) : (r + 1) * len(s)]\n            part.copy_(s[: len(part)])",
    ),
)
changed(
    "one group",
    "one group for all",
    (
        'local = [{**group, "params": [self.shards[p] for p in group["params"]]} for group in groups]',
        "local = list(self.shards.values())",
    ),
)
changed(
    "copies the groups",
    "learning rate fixed",
    (
        "self.param_groups = self.optimizer.param_groups",
        "self.param_groups = [dict(g) for g in self.optimizer.param_groups]",
    ),
)
changed(
    "zeros for nothing",
    "moved without a gradient",
    (
        "shard.grad = None if parameter.grad is None else shard_of(parameter.grad)",
        "shard.grad = shard_of(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)",
    ),
)
changed(
    "keeps everything",
    "everything on every rank",
    ("{p: nn.Parameter(shard_of(p)) for group", "{p: p for group"),
    ("            shard.grad = None if parameter.grad is None else shard_of(parameter.grad)\n", "            pass\n"),
    (GATHER, "pass"),
)
changed("forgets no gradient", "gradients remembered", ("            parameter.grad = None\n", "            pass\n"))
changed(
    "the tail is nobody's",
    "the tail stays",
    (
        GATHER,
        "old = {p: p.data.clone() for p in self.shards}\n        "
        + GATHER
        + "\n        for p, before in old.items():\n            whole = p.numel() // dist.get_world_size() * "
        "dist.get_world_size()\n"
        "            p.data.view(-1)[whole:] = before.view(-1)[whole:]",
    ),
)
changed("hands no options over", "options lost", ("optimizer_cls(local, **kwargs)", "optimizer_cls(local)"))
changed(
    "an optimizer for each step", "no state kept",
    ("        self.optimizer.step()\n", "        self.optimizer.state = {}\n        self.optimizer.step()\n"),
)  # fmt: skip
changed(
    "divides what is a mean", "divided twice",
    ("else shard_of(parameter.grad)", "else shard_of(parameter.grad) / dist.get_world_size()"),
)  # fmt: skip
changed(
    "looks at the first of an iterator", "params read as a list",
    ("        groups = list(params)\n", "        groups = params\n"),
)  # fmt: skip
changed(
    "no shard has a gradient", "nothing moves",
    ("shard.grad = None if parameter.grad is None else shard_of(parameter.grad)", "shard.grad = None"),
)  # fmt: skip
changed("takes parameters", "parameters for gradients", ("shard_of(parameter.grad)", "shard_of(parameter.data)"))
