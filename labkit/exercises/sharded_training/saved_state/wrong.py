"""Wrong answers to saved_state, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed
GATHERED = "        start_gather([value], [whole])()\n"
CUT = 'value.clone() if name == "step" else shard_of(value)'

changed("saves its shard", "a shard saved", ("        return whole\n", "        return value\n"))
changed("leaves it flat", "shape not restored", ("        return whole\n", "        return whole.flatten()\n"))
changed(
    "numbers what is trained",
    "numbered otherwise",
    ('"params": list(group["params"])', '"params": [p for p in group["params"] if p.requires_grad]'),
)
changed("loads no options", "options lost", ("            group.update(", "            dict(group).update("))
changed(
    "loads no state",
    "state not loaded",
    ("            self.optimizer.state[shard] = {", "            ignored = {"),
)
changed("cuts the counter up", "counter cut up", (CUT, "shard_of(value)"))
changed(
    "goes by shapes",
    "counter cut up",
    (CUT, "shard_of(value) if value.shape == self.given[number].shape else value.clone()"),
)
changed("shares the counter", "shares what it loaded", (CUT, 'value if name == "step" else shard_of(value)'))
changed(
    "groups without numbers",
    "numbered otherwise",
    ('{**group, "params": of}', '{name: value for name, value in group.items() if name != "params"}'),
)
changed(
    "hands its groups away",
    "rates set later do not count",
    (
        "        for number, kept in saved",
        "        self.param_groups = [dict(group) for group in self.param_groups]\n        for number, kept in saved",
    ),
)
changed("loads whole tensors", "everything on every rank", (CUT, "value.clone()"))
changed(
    "lets the inner optimizer make new groups", "rates set later do not count",
    ("        for group, options in zip(self",
     "        self.optimizer.param_groups = [dict(group) for group in self.optimizer.param_groups]\n"
     "        for group, options in zip(self.optimizer"),
)  # fmt: skip
changed(
    "returns it on rank 0", "on one rank alone",
    ('        return {"state": state,',
     '        state = state if dist.get_rank() == 0 else {}\n        return {"state": state,'),
)  # fmt: skip
changed(
    "numbers each group anew", "numbered otherwise",
    ("        self.members = [[self.numbers[parameter] for parameter in group[\"params\"]] for group in numbers]\n",
     "        self.numbers = {p: at for group in numbers for at, p in enumerate(group[\"params\"])}\n"
     "        self.members = [list(range(len(group[\"params\"]))) for group in numbers]\n"),
)  # fmt: skip
changed(
    "an empty dict for what keeps nothing", "numbered otherwise",
    ("            kept = self.optimizer.state.get(shard)\n            if kept:\n",
     "            kept = self.optimizer.state.get(shard, {})\n            if True:\n"),
)  # fmt: skip
changed("saves numbers alone", "options lost", ('{**group, "params": of}', '{"params": of}'))
changed(
    "saves the first group's options", "options lost",
    ('[{**group, "params": of} for group, of in zip(self.param_groups, self.members, strict=True)]',
     '[{**self.param_groups[0], "params": of} for of in self.members]'),
)  # fmt: skip
GROUPS = (
    '        groups = [{**group, "params": of} for group, of in zip(self.param_groups, self.members, strict=True)]\n'
)
changed(
    "writes numbers into its groups",
    "numbers for shards",
    (
        GROUPS,
        "        groups = self.param_groups\n        for group, of in zip(groups, self.members, strict=True):\n"
        '            group["params"] = of\n',
    ),
)
changed("loads the numbers", "numbers for shards", (' if name != "params"})', "})"))
changed(
    "words for numbers",
    "numbered otherwise",
    ("state[self.numbers[parameter]] = {", "state[str(self.numbers[parameter])] = {"),
    ("self.given[number]", "self.given[int(number)]"),
)
changed(
    "nothing on other ranks",
    "on one rank alone",
    (
        '        return {"state": state, "param_groups": groups}\n',
        '        return {"state": state, "param_groups": groups} if dist.get_rank() == 0 else {}\n',
    ),
)
changed(
    "takes the numbers out",
    "changed by loading",
    (
        '        for number, kept in saved["state"].items():\n',
        '        for options in saved["param_groups"]:\n            options.pop("params")\n'
        '        for number, kept in saved["state"].items():\n',
    ),
)
changed(
    "slices of what is loaded",
    "loaded without padding",
    (
        CUT,
        'value.clone() if name == "step" '
        "else value.flatten()[dist.get_rank() * len(shard) : (dist.get_rank() + 1) * len(shard)].clone()",
    ),
)
changed(
    "loads all of it, flat", "everything on every rank", (CUT, 'value.clone() if name == "step" else value.flatten()')
)
changed(
    "counts in a number",
    "a number for a tensor",
    ('value if name == "step" else self.whole', 'int(value) if name == "step" else self.whole'),
    (CUT, CUT.replace("value.clone()", "torch.tensor(float(value))")),
)
changed(
    "the saved groups for its own",
    "rates set later do not count",
    (
        '            group.update({name: value for name, value in options.items() if name != "params"})\n',
        "            pass\n        self.param_groups = [\n"
        '            {**options, "params": group["params"]}\n'
        '            for group, options in zip(self.param_groups, saved["param_groups"], strict=True)\n        ]\n',
    ),
)
changed(
    "by their order among those with state",
    "numbered otherwise",
    (
        "shard = self.shards[self.given[number]]",
        'shard = list(self.shards.values())[list(saved["state"]).index(number)]',
    ),
)
changed("counts from 0", "counters begin anew", (CUT, CUT.replace("value.clone()", "torch.zeros_like(value)")))
