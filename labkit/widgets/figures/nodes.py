"""A tree of GPUs on nodes with thick links inside and thin ones between."""

from __future__ import annotations

from labkit.plans.all_reduce import execute
from labkit.plans.reference.rings import ring_plan
from labkit.plans.reference.trees import tree_plan
from labkit.widgets.figures.sizes import within
from labkit.widgets.language import tint
from labkit.widgets.storyboard import WIDTH, Box, Frame, Path, Shape, Story, Words
from labkit.words import plural

_HEIGHT, _SIDE, _Y, _GAP = 196, 44.0, 108, 56


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
    frames = [Frame(f"{num_nodes} nodes of {gpus_per_node} GPUs. Links inside a node are thick, those between thin.",
                    _state(place, gpus_per_node, [1] * size, ()))]  # fmt: skip
    for number, step in enumerate(played.steps, 1):
        moves = tuple((each.src, each.dst) for each in step.transfers)
        counts = [row[0].mask.bit_count() for row in played.contents(number)]
        up = any(each.reduced for each in step.transfers)
        where = f"{thin[number - 1]} of them over a thin link" if thin[number - 1] else "none over a thin link"
        what = f"{plural(len(moves), 'tensor')} {'up the tree, added' if up else 'down the tree'}"
        says = f"Step {number}: {what}, {where}."
        frames.append(Frame(says, _state(place, gpus_per_node, counts, moves)))
    title = f"The tree crosses thin links with {sum(thin)} tensors, the ring with {in_ring:g}"
    telling = 1 + next(k for k, count in enumerate(thin) if count)
    numbers = {"tree, over thin links": sum(thin), "ring, over thin links": f"{in_ring:g}", "steps": len(played.steps)}
    return Story(title, frames, _HEIGHT, numbers, telling)


def _place(rank: int, gpus: int, nodes: int) -> tuple[float, float]:
    node, at = divmod(rank, gpus)
    left, wide = _node(node, nodes)
    return left + wide / 2 + (at - (gpus - 1) / 2) * min(wide / gpus - 2, 72), _Y


def _node(node: int, nodes: int) -> tuple[float, float]:
    """Return the left edge and the width of a node's box; thin links lie between the boxes."""
    wide = (WIDTH - 16 - _GAP * (nodes - 1)) / nodes
    return 8 + node * (wide + _GAP), wide


def _state(
    place: list[tuple[float, float]], gpus: int, counts: list[int], moves: tuple[tuple[int, int], ...]
) -> tuple[Shape, ...]:
    nodes = len(place) // gpus
    shapes: list[Shape] = []
    for node in range(nodes):
        left, wide = _node(node, nodes)
        shapes += [Box("", left, 46, wide, 122, edge="line"), Words(left + 6, 186, f"node {node}")]
        shapes.append(Path((place[node * gpus], place[(node + 1) * gpus - 1]), "line", 9))
        if node + 1 < nodes:
            shapes.append(Path(((left + wide, _Y), (left + wide + _GAP, _Y)), "line", 1.5))
            shapes.append(Words(left + wide + _GAP / 2, _Y + 18, "thin", 12, "middle", "quiet"))
    for src, dst in moves:
        (x0, y), (x1, _) = place[src], place[dst]
        crosses = src // gpus != dst // gpus
        top = y - _SIDE / 2
        lift = 30 if crosses else top - 6 - 6 * abs(src - dst)
        shapes.append(Path(((x0, top), (x0, lift), (x1, lift), (x1, top - 4)), "send", 2.5, arrow=True))
        if crosses:
            shapes.append(Words((x0 + x1) / 2, 24, "over the thin link", 12, "middle"))
    for rank, (x, y) in enumerate(place):
        words = f"{counts[rank]}/{len(place)}"
        fill = "collective" if counts[rank] == len(place) else tint(0)
        shapes.append(Box("", x - _SIDE / 2, y - _SIDE / 2, _SIDE, _SIDE, fill, words))
        shapes.append(Words(x, y + _SIDE / 2 + 16, f"GPU {rank}", 12, "middle", "quiet"))
    senders = dict(moves)
    for rank in range(len(place)):
        x, y = place[senders.get(rank, rank)]
        if rank in senders:
            shapes.append(Box(f"m{rank}", x + 6, y + 6, 16, 12, "send", edge="ground"))
    return tuple(shapes)
