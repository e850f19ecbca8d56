"""Wrong answers to combine_gradients, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed

TOKENS = '[mesh.groups["tensor"]] if weight.tensor == "tokens" else []'
TIED = "        groups += [mesh.ends] if weight.tied and mesh.ends is not None else []\n"
SHARE = "(num_targets / everybody.item())"
REPLICAS = '[mesh.groups["data"], mesh.groups["shard"]]'

changed("sums copies", "copies summed", (TOKENS, '[mesh.groups["tensor"]] if weight.tensor != "cut" else []'))
changed("leaves tokens apart", "tokens not summed", (TOKENS, "[]"))
changed("mixes tensor ranks", "pieces mixed up", (TOKENS, '[mesh.groups["tensor"]]'))
changed(
    "sums over everybody", "pieces mixed up",
    (f"        groups = {REPLICAS}\n", "        groups = [None]\n"), (TOKENS, "[]"), (TIED, ""),
)  # fmt: skip
changed("forgets the other end", "tied on one stage", (TIED, ""))
changed(
    "averages replicas", "each replica alike", (SHARE, '(1 / mesh.sizes["data"] / mesh.sizes["shard"])'),
)  # fmt: skip
changed(
    "divides by replicas too", "averaged twice",
    (SHARE, '(num_targets / everybody.item() / mesh.sizes["data"] / mesh.sizes["shard"])'),
)  # fmt: skip
changed(
    "averages tied weights", "tied averaged",
    (TIED, TIED + "        gradient = gradient / (2 if weight.tied and mesh.ends is not None else 1)\n"),
)  # fmt: skip
changed("sums tied weights over everybody", "no ends, everybody", (" and mesh.ends is not None", ""))
changed(
    "counts targets along data", "some replicas' targets", ('for axis in ("data", "shard"):', 'for axis in ("data",):')
)
changed("adds up", "not weighed", (SHARE, "1.0"))
changed("weighs by targets", "not weighed", (SHARE, "num_targets"))
changed("forgets shard", "one axis of replicas", (REPLICAS, '[mesh.groups["data"]]'))
changed(
    "the next one's shard", "another's shard",
    ('rows[mesh.place["shard"]]', 'rows[(mesh.place["shard"] + 1) % count]'),
)  # fmt: skip
changed("keeps the whole", "not cut", ('rows[mesh.place["shard"]].clone()', "gradient"))
changed(
    "sums tied weights over all stages", "tied everywhere",
    (TIED, '        groups += [mesh.groups["pipeline"]] if weight.tied else []\n'),
)  # fmt: skip
changed(
    "keeps the shape of a row", "shape lost", ('rows[mesh.place["shard"]].clone()', 'rows[mesh.place["shard"]][None]')
)
changed("returns nothing", "nothing returned", ("    return shards\n", ""))
changed("returns the last one alone", "wrong length", ("    return shards\n", "    return shards[-1:]\n"))
changed("zeros in front", "padded in front", ("(0, -gradient.numel() % count)", "(-gradient.numel() % count, 0)"))
WRONG.changed(
    "upside down",
    "weighed upside down",
    ("(num_targets / everybody.item())", "(everybody.item() / num_targets)"),
)
WRONG.changed("the other kinds", "all but tokens", ('weight.tensor == "tokens"', 'weight.tensor != "tokens"'))
changed(
    "over everybody", "summed over everybody",
    ("dist.all_reduce(gradient, group=group)", "dist.all_reduce(gradient)"),
)  # fmt: skip
changed("no sum", "never summed", ("dist.all_reduce(gradient, group=group)", "pass"))
changed("adds the weight", "added, not multiplied", ("grad * (num_targets", "grad + (num_targets"))
changed("takes the weight off", "added, not multiplied", ("grad * (num_targets", "grad - (num_targets"))
changed("sums at both ends", "all ends summed", (TIED, TIED.replace("weight.tied and ", "")))
WRONG.changed("takes the weights", "parameters for gradients", ("weight.parameter.grad *", "weight.parameter.data *"))
