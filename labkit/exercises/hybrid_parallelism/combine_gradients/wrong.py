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
changed("sums pieces", "all but tokens", ('weight.tensor == "tokens"', 'weight.tensor == "cut"'))
changed("sums copies, and no tokens", "all but tokens", ('weight.tensor == "tokens"', 'weight.tensor == "whole"'))
changed(
    "counts targets along tensor, too", "averaged twice",
    ('for axis in ("data", "shard"):', 'for axis in ("data", "shard", "tensor"):'),
)  # fmt: skip
changed(
    "counts targets of all ranks", "averaged twice",
    ('    for axis in ("data", "shard"):\n        dist.all_reduce(everybody, group=mesh.groups[axis])\n',
     "    dist.all_reduce(everybody)\n"),
)  # fmt: skip
changed(
    "pieces of unequal size", "shape lost",
    ('rows[mesh.place["shard"]].clone()', 'gradient.flatten().tensor_split(count)[mesh.place["shard"]].clone()'),
)  # fmt: skip
changed(
    "the shard of its rank", "another's shard",
    ('rows[mesh.place["shard"]]', "rows[dist.get_rank() % count]"),
)  # fmt: skip
changed(
    "strided pieces", "every so-manieth element",
    ('rows[mesh.place["shard"]].clone()', 'rows.flatten()[mesh.place["shard"] :: count].clone()'),
)  # fmt: skip
changed("shares of a shard alone", "one axis of replicas", (REPLICAS, '[mesh.groups["shard"]]'))
WRONG.right(
    "in the gradients themselves, replicas last",
    """def combine_gradients(weights, mesh, num_targets):
    everybody = torch.tensor([num_targets])
    dist.all_reduce(everybody, group=mesh.groups["shard"])
    dist.all_reduce(everybody, group=mesh.groups["data"])
    found = []
    for weight in weights:
        gradient = weight.parameter.grad
        gradient.mul_(num_targets).div_(int(everybody))
        if weight.tied and mesh.sizes["pipeline"] > 1:
            dist.all_reduce(gradient, group=mesh.ends)
        if weight.tensor == "tokens":
            dist.all_reduce(gradient, group=mesh.groups["tensor"])
        for axis in ("shard", "data"):
            dist.all_reduce(gradient, group=mesh.groups[axis])
        length = -(-gradient.numel() // mesh.sizes["shard"])
        piece = gradient.view(-1)[mesh.place["shard"] * length :][:length]
        found.append(functional.pad(piece, (0, length - len(piece))))
    return found
""",
)
changed(
    "weighs the sum", "weighed after the sum",
    (f"weight.parameter.grad * {SHARE}", "weight.parameter.grad.clone()"),
    ('        count = mesh.sizes["shard"]\n', f'        gradient *= {SHARE}\n        count = mesh.sizes["shard"]\n'),
)  # fmt: skip
changed(
    "averages tokens", "tokens averaged",
    ('        count = mesh.sizes["shard"]\n',
     '        gradient /= mesh.sizes["tensor"] if weight.tensor == "tokens" else 1\n'
     '        count = mesh.sizes["shard"]\n'),
)  # fmt: skip
changed("tokens, or else tied", "tied or tokens",
        (TIED, TIED.replace("weight.tied", 'weight.tied and weight.tensor != "tokens"')))  # fmt: skip
changed("tied, or else tokens", "tied or tokens",
        (TOKENS, TOKENS.replace('== "tokens"', '== "tokens" and not weight.tied')))  # fmt: skip
changed("waits for no handle", "not waited for",
        ("(gradient, group=group)", "(gradient, group=group, async_op=True)"))  # fmt: skip
changed("divides whole numbers", "weights rounded down", (SHARE, "(num_targets // everybody.item())"))
changed(
    "the most targets of a replica", "the most targets",
    ("dist.all_reduce(everybody, group", "dist.all_reduce(everybody, op=dist.ReduceOp.MAX, group"),
)  # fmt: skip
