"""Wrong answers to clip_whole, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed

ONCE = 'counts_here = weight.tensor == "cut" or mesh.place["tensor"] == 0'
FIRST = '(not weight.tied or mesh.place["pipeline"] == 0)'
AXES = 'for axis in ("shard", "pipeline", "tensor"):'
SUM = "        dist.all_reduce(squares, group=mesh.groups[axis])\n"
SCALE = "        shard.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))\n"

changed("counts copies", "copies counted", (ONCE, "counts_here = True"))
changed("counts copies of tokens", "tokens counted", (ONCE, ONCE.replace('== "cut"', '!= "whole"')))
changed(
    "leaves tied out on the last stage", "tied not on the last",
    (FIRST, '(not weight.tied or mesh.place["pipeline"] != mesh.sizes["pipeline"] - 1)'),
)  # fmt: skip
changed(
    "adds norms of ranks", "norms added",
    (AXES, "squares = squares.sqrt()\n    " + AXES), ("    norm = squares.sqrt()\n", "    norm = squares\n"),
)  # fmt: skip
changed(
    "adds norms of weights", "norms added",
    ("shard.double().square().sum()", "shard.double().norm()"), ("    norm = squares.sqrt()\n", "    norm = squares\n"),
)  # fmt: skip
changed("counts both ends", "tied counted twice", (FIRST, "True"))
changed("counts replicas", "replicas counted", (AXES, 'for axis in ("data", "shard", "pipeline", "tensor"):'))
changed(
    "asks everybody", "every copy counted",
    (AXES, "for _ in range(1):"), (SUM, "        dist.all_reduce(squares)\n"),
    (ONCE, "counts_here = True"), (FIRST, "True"),
)  # fmt: skip
changed(
    "leaves tensor out", "not over tensor", (AXES, 'for axis in ("shard", "pipeline"):'), (ONCE, "counts_here = True")
)
changed("leaves stages out", "not over pipeline", (AXES, 'for axis in ("shard", "tensor"):'), (FIRST, "True"))
changed("leaves shards out", "not over shard", (AXES, 'for axis in ("pipeline", "tensor"):'))
changed("asks nobody", "not over tensor", (AXES, "for axis in ():"), (ONCE, "counts_here = True"), (FIRST, "True"))
changed("takes no root", "no root", ("squares.sqrt()", "squares"))
changed(
    "returns the clipped norm", "norm after clipping", ("    return norm\n", "    return norm.clamp(max=max_norm)\n")
)
changed("scales short ones", "always scaled", (".clamp(max=1.0)", ""))
changed("clips each", "each by its own norm", ("(norm + 1e-6)", "(shard.norm() + 1e-6)"))
changed("scales copies", "not in place", (SCALE, "        shard = shard * (max_norm / (norm + 1e-6)).clamp(max=1.0)\n"))
changed(
    "leaves where nothing counts", "a rank stays away",
    ("    for axis in", '    if mesh.place["tensor"] and all(each.tensor != "cut" for each in weights[1:2]):\n'
                        "        return squares\n    for axis in"),
)  # fmt: skip
changed("returns nothing", "nothing returned", ("    return norm\n", ""))
changed("counts no copy", "copies left out", (ONCE, 'counts_here = weight.tensor == "cut"'))
changed(
    "counts the first rank's pieces", "pieces left out",
    (ONCE, 'counts_here = mesh.place["tensor"] == 0'),
)  # fmt: skip
changed("keeps the last", "the last weight alone", ("squares += ", "squares = "))
changed("never counts what is tied", "tied not on the last", (FIRST, "(not weight.tied)"))
WRONG.right(
    "one number of Python's, and a factor only where it is needed",
    """def clip_whole(weights, shards, mesh, max_norm):
    place = mesh.place
    mine = [
        shard for weight, shard in zip(weights, shards)
        if not (weight.tensor != "cut" and place["tensor"] > 0) and not (weight.tied and place["pipeline"] > 0)
    ]
    total = torch.tensor([sum(float((each * each).sum()) for each in mine)], dtype=torch.float64)
    for axis in ("tensor", "pipeline", "shard"):
        dist.all_reduce(total, group=mesh.groups[axis])
    norm = total.item() ** 0.5
    if norm > max_norm:
        for each in shards:
            each /= norm / max_norm
    return norm
""",
)
WRONG.changed(
    "over all ranks", "summed over everybody", ("all_reduce(squares, group=mesh.groups[axis])", "all_reduce(squares)")
)
WRONG.changed("tied everywhere, the rest once", "only tied ones", ("not weight.tied or", "weight.tied or"))
changed(
    "scales what it counted", "only some scaled",
    (SCALE, '        if shard.numel() and mesh.place["pipeline"] == 0 and mesh.place["tensor"] == 0:\n    ' + SCALE),
)  # fmt: skip
changed(
    "a norm on rank 0 alone", "a norm on one rank",
    ("    return norm\n", "    return norm if dist.get_rank() == 0 else torch.zeros(())\n"),
)  # fmt: skip
changed(
    "each stage by its own norm", "not over pipeline",
    (AXES, 'for axis in ("shard", "tensor"):'),
)  # fmt: skip
changed(
    "new tensors in the list", "not in place",
    ("    for shard in shards:\n        shard.mul_(",
     "    for index, shard in enumerate(shards):\n        shards[index] = shard * ("),
)  # fmt: skip
changed(
    "a share of each copy, two of what is tied", "tied counts half",
    ("        if counts_here and (not weight.tied or mesh.place[\"pipeline\"] == 0):\n            squares += shard",
     "        copies = 1 if weight.tensor == \"cut\" else mesh.sizes[\"tensor\"]\n"
     "        squares += 1 / (copies * (2 if weight.tied else 1)) * shard"),
)  # fmt: skip
changed(
    "each rank by its own norm", "not over any axis",
    ("    for axis in (\"shard\", \"pipeline\", \"tensor\"):\n"
     "        dist.all_reduce(squares, group=mesh.groups[axis])\n", ""),
)  # fmt: skip
WRONG.right(
    "the first replica counts, and everybody adds up",
    """def clip_whole(weights, shards, mesh, max_norm):
    total = torch.zeros(1, dtype=torch.float64)
    for weight, shard in zip(weights, shards):
        first = [axis for axis in ("data", "tensor", "pipeline") if mesh.place[axis] == 0]
        mine = ("tensor" in first or weight.tensor == "cut") and ("pipeline" in first or not weight.tied)
        if "data" in first and mine:
            total += shard.norm() ** 2
    dist.all_reduce(total)
    norm = total[0].sqrt()
    for shard in shards:
        shard *= min(1.0, max_norm / max(norm.item(), 1e-12))
    return norm
""",
)
changed("counts what is tied with one stage alone", "tied counted with one stage alone",
        (FIRST, "(not weight.tied or mesh.ends is None)"))  # fmt: skip
changed(
    "counts all, and divides by tensor ranks", "averaged over tensor",
    (ONCE, "counts_here = True"), ("norm = squares.sqrt()", 'norm = (squares / mesh.sizes["tensor"]).sqrt()'),
)  # fmt: skip
changed(
    "holds each element within max_norm", "elements clamped", (SCALE, "        shard.clamp_(-max_norm, max_norm)\n")
)
changed("takes the largest rank's", "pieces left out",
        (SUM, SUM.replace("squares,", "squares, op=dist.ReduceOp.MAX,")))  # fmt: skip
changed(
    "takes the largest element", "the largest element",
    ("squares += shard.double().square().sum()", "squares = torch.maximum(squares, shard.double().abs().max())"),
    (SUM, SUM.replace("squares,", "squares, op=dist.ReduceOp.MAX,")), ("norm = squares.sqrt()", "norm = squares"),
)  # fmt: skip
