"""A tree of GPUs on nodes with thick links inside and thin ones between."""

from __future__ import annotations

from labkit.plans.all_reduce import execute
from labkit.plans.reference.rings import ring_plan
from labkit.plans.reference.trees import tree_plan
from labkit.widgets.figures.sizes import within
from labkit.widgets.language import tint
from labkit.widgets.storyboard import WIDTH, Box, Frame, Path, Shape, Story, Words

_HEIGHT, _SIDE, _Y = 236, 44.0, 104


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
        says = f"Step {number}: {len(moves)} tensors {'are added up' if up else 'are handed down'}, {where}."
        frames.append(Frame(says, _state(place, gpus_per_node, counts, moves)))
    title = f"The tree crosses thin links with {sum(thin)} tensors, the ring with {in_ring:g}"
    telling = 1 + next(k for k, count in enumerate(thin) if count)
    numbers = {"tree, over thin links": sum(thin), "ring, over thin links": f"{in_ring:g}", "steps": len(played.steps)}
    return Story(title, frames, _HEIGHT, numbers, telling)


def _place(rank: int, gpus: int, nodes: int) -> tuple[float, float]:
    node, at = divmod(rank, gpus)
    wide = WIDTH / nodes
    return node * wide + wide / 2 + (at - (gpus - 1) / 2) * min(wide / gpus - 6, 74), _Y


def _state(
    place: list[tuple[float, float]], gpus: int, counts: list[int], moves: tuple[tuple[int, int], ...]
) -> tuple[Shape, ...]:
    nodes = len(place) // gpus
    wide = WIDTH / nodes
    shapes: list[Shape] = []
    for node in range(nodes):
        shapes += [
            Box("", node * wide + 8, 40, wide - 16, 130, edge="line"),
            Words(node * wide + 16, 58, f"node {node}"),
        ]
        first, last = place[node * gpus], place[(node + 1) * gpus - 1]
        shapes.append(Path((first, last), "line", 9))
        if node + 1 < nodes:
            shapes.append(Path(((last[0], 190), (place[(node + 1) * gpus][0], 190)), "line", 1.5))
            shapes.append(Words((node + 1) * wide, 208, "thin", 12, "middle", "quiet"))
            shapes += [Path((last, (last[0], 190)), "line", 1.5)]
        if node:
            shapes.append(Path((first, (first[0], 190)), "line", 1.5))
    for src, dst in moves:
        (x0, y), (x1, _) = place[src], place[dst]
        lift = y - _SIDE / 2 - 8 - 0.06 * abs(x1 - x0)
        shapes.append(
            Path(((x0, y - _SIDE / 2), (x0, lift), (x1, lift), (x1, y - _SIDE / 2 - 4)), "send", 2.5, arrow=True)
        )
    for rank, (x, y) in enumerate(place):
        whole = counts[rank] == len(place)
        words = f"{counts[rank]}/{len(place)}"
        fill = "collective" if whole else tint(0)
        shapes.append(Box("", x - _SIDE / 2, y - _SIDE / 2, _SIDE, _SIDE, fill, words))
        shapes.append(Words(x, y + _SIDE / 2 + 16, f"GPU {rank}", 12, "middle", "quiet"))
    for src, dst in moves:
        x, y = place[dst]
        shapes.append(Box(f"m{src}", x + 6, y + 6, 16, 12, "send", edge="ground"))
    return tuple(shapes)
