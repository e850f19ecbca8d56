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
