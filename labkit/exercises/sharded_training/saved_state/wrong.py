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
