"""A tree of GPUs on nodes with thick links inside and thin ones between."""

from __future__ import annotations

from collections.abc import Sequence

from labkit.plans.all_reduce import execute
from labkit.plans.reference.rings import ring_plan
from labkit.plans.reference.trees import tree_plan
from labkit.widgets.figures.sizes import within
from labkit.widgets.language import tint
from labkit.widgets.storyboard import WIDTH, Box, Frame, Path, Shape, Story, Words
from labkit.words import plural

Moves = Sequence[tuple[int, int]]
_HEIGHT, _SIDE, _Y, _GAP = 212, 44.0, 108, 56


def two_nodes(num_nodes: int = 2, gpus_per_node: int = 4) -> Story:
    """Return the figure of a tree all-reduce whose fewest messages cross the thin links between nodes.

    Args:
        num_nodes: 2 or 4.
        gpus_per_node: 2 or 4.
    """
    within("num_nodes", num_nodes, 2, 4)
    within("gpus_per_node", gpus_per_node, 2, 4)
    size = num_nodes * gpus_per_node
    played = execute([tree_plan(rank, size) for rank in range(size)], 1)
    ring = execute([ring_plan(rank, size) for rank in range(size)])

    def crosses(src: int, dst: int) -> bool:
        return src // gpus_per_node != dst // gpus_per_node

    thin = [sum(crosses(each.src, each.dst) for each in step.transfers) for step in played.steps]
    in_ring = sum(crosses(each.src, each.dst) for step in ring.steps for each in step.transfers) / size
    place = [_place(rank, gpus_per_node, num_nodes) for rank in range(size)]
    sent: list[Moves] = [[(each.src, each.dst) for each in step.transfers] for step in played.steps]
    frames = [Frame(f"{num_nodes} nodes of {gpus_per_node} GPUs. Links inside a node are thick, those between thin.",
                    _state(place, gpus_per_node, [1] * size, 0, (), sent[0]))]  # fmt: skip
    for number, (step, moves) in enumerate(zip(played.steps, sent, strict=True), 1):
        counts = [row[0].mask.bit_count() for row in played.contents(number)]
        up = any(each.reduced for each in step.transfers)
        where = _where(thin[number - 1], len(moves))
        one = len(moves) == 1
        added = f" and {'is' if one else 'are'} added" if up else ""
        goes = f"{'goes' if one else 'go'} {'up' if up else 'down'} the tree"
        says = f"Step {number}: {plural(len(moves), 'tensor')} {goes} {where}{added}."
        frames.append(Frame(says, _state(place, gpus_per_node, counts, number, moves, [*sent, ()][number])))
    round_it = tuple((rank, (rank + 1) % size) for rank in range(size))
    crossings = sum(crosses(*pair) for pair in round_it)
    each = f"with 1/{size} of a tensor in each of {len(ring.steps)} steps: {in_ring:g} tensors"
    frames.append(Frame(f"A ring crosses thin links in {crossings} places, {each}.",
                        _state(place, gpus_per_node, [size] * size, 0, round_it)))  # fmt: skip
    title = f"Over thin links the tree sends {plural(sum(thin), 'tensor')}, the ring {in_ring:g}"
    telling = 1 + next(k for k, count in enumerate(thin) if count)
    numbers = {"tree, over thin links": sum(thin), "ring, over thin links": f"{in_ring:g}", "steps": len(played.steps)}
    return Story(title, frames, _HEIGHT, numbers, telling)


def _where(thin: int, sent: int) -> str:
    """Return over which links tensors go."""
    if thin in (0, sent):
        return f"over {'thin' if thin else 'thick'} links" if sent > 1 else f"over a {'thin' if thin else 'thick'} link"
    return f"{thin} of them over thin links"


def _place(rank: int, gpus: int, nodes: int) -> tuple[float, float]:
    node, at = divmod(rank, gpus)
    left, wide = _node(node, nodes)
    return left + wide / 2 + (at - (gpus - 1) / 2) * min(wide / gpus - 2, 72), _Y


def _node(node: int, nodes: int) -> tuple[float, float]:
    """Return the left edge and the width of a node's box; thin links lie between the boxes."""
    wide = (WIDTH - 16 - _GAP * (nodes - 1)) / nodes
    return 8 + node * (wide + _GAP), wide


def _state(
    place: list[tuple[float, float]], gpus: int, counts: list[int], step: int, moves: Moves, coming: Moves = ()
) -> tuple[Shape, ...]:
    """Return the nodes after some messages, with what is sent next at its senders."""
    nodes = len(place) // gpus
    shapes: list[Shape] = []
    for node in range(nodes):
        left, wide = _node(node, nodes)
        shapes += [
            Box("", left, 46, wide, 122, edge="line"),
            Words(left + wide / 2, 163, f"node {node}", anchor="middle"),
        ]
        shapes.append(Path((place[node * gpus], place[(node + 1) * gpus - 1]), "line", 9))
        if node + 1 < nodes:
            shapes.append(Path(((left + wide, _Y), (left + wide + _GAP, _Y)), "line", 1.5))
            shapes.append(Words(left + wide + _GAP / 2, _Y + 18, "thin", 12, "middle", "quiet"))
    for src, dst in moves:
        (x0, y), (x1, _) = place[src], place[dst]
        crosses = src // gpus != dst // gpus
        top = y - _SIDE / 2
        if tuple(moves[-1]) == (len(place) - 1, 0):  # a ring: to the next in line, and back below all nodes
            shapes.append(_round(x0, x1, y, closes=dst == 0))
            continue
        lift = 30 if crosses else top - 6 - 6 * abs(src - dst)
        shapes.append(Path(((x0, top), (x0, lift), (x1, lift), (x1, top - 4)), "send", 2.5, arrow=True))
        if crosses:
            shapes.append(Words((x0 + x1) / 2, 24, "over the thin link", 12, "middle"))
    for rank, (x, y) in enumerate(place):
        words = f"{counts[rank]}/{len(place)}"
        fill = "collective" if counts[rank] == len(place) else tint(0)
        shapes.append(Box("", x - _SIDE / 2, y - _SIDE / 2, _SIDE, _SIDE, fill, words))
        shapes.append(Words(x, y + _SIDE / 2 + 16, f"GPU {rank}", 12, "middle", "quiet"))
    key = f"3/{len(place)}: the sum of 3 of {len(place)} GPUs' tensors; violet: a tensor on its way"
    shapes.append(Words(8, 206, key, 12, fill="quiet"))
    for src, dst in moves:
        x, y = place[dst]
        shapes.append(Box(f"m{step}.{src}", x + 6, y + 6, 16, 12, "send", edge="ground"))
    for src, _ in coming:
        x, y = place[src]
        shapes.append(Box(f"m{step + 1}.{src}", x + _SIDE / 2 - 12, y - _SIDE / 2 - 6, 16, 12, "send", edge="ground"))
    return tuple(shapes)


def _round(x0: float, x1: float, y: float, closes: bool) -> Path:
    """Return a ring's arrow: to the neighbour, or from the last below all others to the first."""
    if not closes:
        return Path(((x0 + _SIDE / 2, y), (x1 - _SIDE / 2 - 2, y)), "send", 2.5, arrow=True)
    below = y + _SIDE / 2
    return Path(((x0, below + 20), (x0, below + 52), (x1, below + 52), (x1, below + 22)), "send", 2.5, arrow=True)
