"""Wrong answers to mesh_groups, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed

AXES = "for axis in reversed(sizes):"
OTHERS = "    others = [axis for axis in sizes if axis not in axes]\n"
LISTED = "    return [r for r in range(count) if all(coordinates(r, sizes)[axis] == mine[axis] for axis in others)]\n"
LOOP = "    for rank in range(dist.get_world_size()):\n"

changed("reads column by column", "column by column", (AXES, "for axis in sizes:"))
changed("holds these axes fast", "the other axes", (OTHERS, "    others = list(axes)\n"))
changed(
    "takes neighbours", "neighbours everywhere",
    (LISTED, "    size = torch.Size(sizes[axis] for axis in axes).numel()\n"
             "    return list(range(rank // size * size, rank // size * size + size))\n"),
)  # fmt: skip
changed(
    "takes the first axis",
    "one axis of several",
    (OTHERS, "    others = [axis for axis in sizes if axis != axes[0]]\n"),
)
changed(
    "unpacks one axis",
    "one axis of several",
    (OTHERS, "    (mine_only,) = axes\n    others = [axis for axis in sizes if axis != mine_only]\n"),
)
changed(
    "leaves itself out", "without itself",
    (LISTED, LISTED.replace("r for r in range(count) if", "r for r in range(count) if r != rank and")),
    ("        ranks = ranks_along(rank, sizes, *axes)\n", "        ranks = sorted([rank, *ranks_along(rank, sizes, "
    "*axes)])\n"),
)  # fmt: skip
changed("descends", "not ascending", (LISTED, LISTED.replace("range(count)", "reversed(range(count))")),
        ("ranks[0] == rank", "ranks[-1] == rank"))  # fmt: skip
changed(
    "returns the ranks", "no group", ("    return own\n", "    return ranks_along(dist.get_rank(), sizes, *axes)\n")
)
changed(
    "makes its own group alone", "only its own group",
    ("    own = None\n", "    return dist.new_group(ranks_along(dist.get_rank(), sizes, *axes))\n"),
)  # fmt: skip
changed(
    "makes a group for each rank", "only its own group",
    ("        if ranks[0] == rank:\n", "        if ranks:\n"),
    ("if dist.get_rank() in ranks", "if dist.get_rank() == rank"),
)  # fmt: skip
WRONG.right(
    "strides, and every list of the mesh in turn",
    """import itertools


def coordinates(rank, sizes):
    place, stride = {}, 1
    for axis, size in reversed(sizes.items()):
        place[axis] = rank // stride % size
        stride *= size
    return {axis: place[axis] for axis in sizes}


def ranks_along(rank, sizes, *axes):
    mine, found = coordinates(rank, sizes), []
    for places in itertools.product(*(range(size) if axis in axes else [mine[axis]] for axis, size in sizes.items())):
        number = 0
        for place, size in zip(places, sizes.values()):
            number = number * size + place
        found.append(number)
    return found


def group_along(sizes, *axes):
    lists = sorted({tuple(ranks_along(rank, sizes, *axes)) for rank in range(dist.get_world_size())})
    groups = {ranks: dist.new_group(list(ranks)) for ranks in lists}
    return groups[tuple(ranks_along(dist.get_rank(), sizes, *axes))]
""",
)
ALONG = """
        mine = coordinates(rank, sizes)
        everybody = range(dist.get_world_size())
        fixed = [axis for axis in sizes if axis not in axes]
        ranks = [each for each in everybody if all(coordinates(each, sizes)[axis] == mine[axis] for axis in fixed)]
"""
changed(
    "asks for other places", "without itself",
    (LISTED, LISTED.replace("==", "!=")), ("        ranks = ranks_along(rank, sizes, *axes)\n", ALONG),
)  # fmt: skip
changed("compares no place", "everybody",
        (" if all(coordinates(r, sizes)[axis] == mine[axis] for axis in others)]", "]"))  # fmt: skip
changed(
    "data outermost, tensor fastest, whatever sizes says", "axes in an order of their own",
    (AXES, 'for axis in (each for each in ("tensor", "shard", "pipeline", "data") if each in sizes):'),
)  # fmt: skip
changed(
    "three axes that are always there", "axes in an order of their own",
    (AXES, 'for axis in ("tensor", "pipeline", "data"):'),
)  # fmt: skip
changed("one other axis is enough", "not every other axis", ("r in range(count) if all(", "r in range(count) if any("))
changed(
    "its own group first", "only its own group",
    ("    own = None\n    for rank in range(dist.get_world_size()):\n",
     "    own, mine = None, ranks_along(dist.get_rank(), sizes, *axes)[0]\n"
     "    for rank in [mine, *(each for each in range(dist.get_world_size()) if each != mine)]:\n"),
)  # fmt: skip
changed(
    "joins the ranks along each axis", "lists of single axes joined",
    (LISTED, """    found = set()
    for axis in axes:
        others = [each for each in sizes if each != axis]
        found |= {r for r in range(count) if all(coordinates(r, sizes)[each] == mine[each] for each in others)}
    return sorted(found)
"""),
)  # fmt: skip
changed(
    "the first of a group alone keeps it", "only its own group",
    ("own = group if dist.get_rank() in ranks", "own = group if dist.get_rank() == rank"),
)  # fmt: skip
changed(
    "strides of the axes before", "strides of the axes before",
    (LISTED, """    ranks, stride = [0], 1
    for axis in sizes:
        ranks = [r + stride * at for r in ranks for at in (range(sizes[axis]) if axis in axes else [mine[axis]])]
        stride *= sizes[axis]
    return sorted(ranks)
"""),
)  # fmt: skip
changed(
    "the order of the named axes", "not ascending",
    (LISTED, LISTED.replace("return ", "found = ")
     + "    return sorted(found, key=lambda r: [coordinates(r, sizes)[axis] for axis in axes])\n"),
)  # fmt: skip
WRONG.wrong("joins the ranks along each axis, and makes each list once", "lists of single axes joined", """
def coordinates(rank, sizes):
    place = {}
    for axis in reversed(sizes):
        rank, place[axis] = divmod(rank, sizes[axis])
    return {axis: place[axis] for axis in sizes}


def ranks_along(rank, sizes, *axes):
    mine, ranks = coordinates(rank, sizes), set()
    for axis in axes:
        for other in range(dist.get_world_size()):
            place = coordinates(other, sizes)
            if all(place[each] == mine[each] for each in sizes if each != axis):
                ranks.add(other)
    return sorted(ranks)


def group_along(sizes, *axes):
    own, made = None, set()
    for rank in range(dist.get_world_size()):
        ranks = tuple(ranks_along(rank, sizes, *axes))
        if ranks not in made:
            made.add(ranks)
            group = dist.new_group(list(ranks))
            own = group if dist.get_rank() in ranks else own
    return own
""")  # fmt: skip
