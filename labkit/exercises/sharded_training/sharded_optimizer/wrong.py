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
changed(
    "takes parameters alone", "groups not taken",
    ("        if not isinstance(groups[0], dict):\n            groups = [{\"params\": groups}]\n",
     "        groups = [{\"params\": groups}]\n"),
)  # fmt: skip
changed(
    "decays what is frozen", "frozen ones updated",
    ("[p for p in group[\"params\"] if p.requires_grad]", "list(group[\"params\"])"),
    ("None if parameter.grad is None else shard_of(parameter.grad)",
     "shard_of(parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)) "
     "if parameter.grad is not None or not parameter.requires_grad else None"),
)  # fmt: skip
changed(
    "keeps the first rate", "learning rate fixed",
    ("        self.param_groups = self.optimizer.param_groups\n", "        self.param_groups = groups\n"),
)  # fmt: skip
changed(
    "reads the rate of the first group", "one rate for all groups",
    ("        self.param_groups = self.optimizer.param_groups\n",
     "        self.param_groups = [dict(group) for group in self.optimizer.param_groups]\n"),
    ("        self.optimizer.step()\n",
     "        for group in self.optimizer.param_groups:\n            group[\"lr\"] = self.param_groups[0][\"lr\"]\n"
     "        self.optimizer.step()\n"),
)  # fmt: skip
changed(
    "deals whole parameters out", "more than a share",
    ("        self.shards = {p: nn.Parameter(shard_of(p)) for group in groups for p in group[\"params\"]}\n",
     "        every = [p for group in groups for p in group[\"params\"]]\n"
     "        self.owner = {p: at % dist.get_world_size() for at, p in enumerate(every)}\n"
     "        self.shards = {p: p for p in every if self.owner[p] == dist.get_rank()}\n"),
    ("[self.shards[p] for p in group[\"params\"]]", "[p for p in group[\"params\"] if p in self.shards]"),
    ("        for parameter in self.shards:\n", "        for parameter in self.owner:\n"),
    ("        self.take_gradients()\n", ""),
    (GATHER, "for p, owner in self.owner.items():\n            dist.broadcast(p.data, owner)"),
    ("        for shard in self.shards.values():\n            shard.grad = None\n", ""),
)  # fmt: skip
changed(
    "averages once more", "equal gradients sent",
    ("else shard_of(parameter.grad)", "else start_scatter([parameter.grad])()[0]"),
)  # fmt: skip
WRONG.right(
    "groups of its own with the parameters in them",
    """class ShardedOptimizer:
    def __init__(self, params, optimizer_cls, **kwargs):
        given = list(params)
        if not isinstance(given[0], dict):
            given = [{"params": given}]
        self.trained = [[p for p in group["params"] if p.requires_grad] for group in given]
        self.parts = [[torch.nn.Parameter(shard_of(p)) for p in each] for each in self.trained]
        local = [{**group, "params": parts} for group, parts in zip(given, self.parts)]
        self.inner = optimizer_cls(local, **kwargs)
        self.param_groups = [
            {**group, "params": each} for group, each in zip(self.inner.param_groups, self.trained)
        ]

    def zero_grad(self, set_to_none=True):
        for each in self.trained:
            for parameter in each:
                parameter.grad = None

    def step(self):
        for mine, theirs in zip(self.inner.param_groups, self.param_groups):
            mine["lr"] = theirs["lr"]
        whole, parts = sum(self.trained, []), sum(self.parts, [])
        for parameter, part in zip(whole, parts):
            part.grad = None if parameter.grad is None else shard_of(parameter.grad)
        self.inner.step()
        start_gather(parts, whole)()
""",
)
changed(
    "only those that have one",
    "an old gradient again",
    (
        "            shard.grad = None if parameter.grad is None else shard_of(parameter.grad)\n",
        "            if parameter.grad is not None:\n                shard.grad = shard_of(parameter.grad)\n",
    ),
    ("        for shard in self.shards.values():\n            shard.grad = None\n", ""),
)
changed(
    "looks at the first",
    "params read as a list",
    (
        "        groups = list(params)\n        if not isinstance(groups[0], dict):\n"
        '            groups = [{"params": groups}]\n',
        "        if isinstance(next(iter(params)), dict):\n            groups = list(params)\n"
        '        else:\n            groups = [{"params": list(params)}]\n',
    ),
)
changed(
    "adds to what the shard had",
    "gradients pile up",
    (
        "            shard.grad = None if parameter.grad is None else shard_of(parameter.grad)\n",
        "            if parameter.grad is not None:\n"
        "                had = 0 if shard.grad is None else shard.grad\n"
        "                shard.grad = shard_of(parameter.grad) + had\n",
    ),
    ("        for shard in self.shards.values():\n            shard.grad = None\n", ""),
)
changed(
    "the default rate in each step",
    "one rate for all groups",
    (
        "        self.take_gradients()\n        self.optimizer.step()",
        "        self.take_gradients()\n        for group in self.param_groups:\n"
        '            group["lr"] = self.optimizer.defaults["lr"]\n        self.optimizer.step()',
    ),
)
changed(
    "has read the iterator before",
    "params read as a list",
    (
        "        groups = list(params)\n        if not isinstance(groups[0], dict):\n"
        '            groups = [{"params": groups}]\n',
        "        whole = list(params)\n"
        '        groups = whole if isinstance(whole[0], dict) else [{"params": params}]\n',
    ),
)
changed(
    "new shards in each step",
    "nothing moves",
    (
        "        self.take_gradients()\n        self.optimizer.step()",
        "        self.shards = {p: nn.Parameter(shard_of(p)) for p in self.shards}\n"
        "        self.take_gradients()\n        self.optimizer.step()",
    ),
)
