"""Which messages a collective consists of, and which algorithm is taken.

The choice follows NCCL in what it chooses from, not in its tables: all_reduce takes the cheaper of ring and tree,
broadcast and reduce the cheaper of a chain (its ring) and a tree, all_gather and reduce_scatter a ring; what NCCL
makes of point-to-point messages (all_to_all, gather, scatter) is a direct exchange. Cheaper means by the network's
own estimate. "Tree" is a binomial tree in its latency and NCCL's double binary tree in its bytes: no port carries more
than twice the tensor in each direction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from labkit.simulator.cluster import Algorithm
from labkit.simulator.network import Network, Traffic

_RINGS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
_TREES = ("all_reduce", "broadcast", "reduce")


def choose(
    kind: str, ranks: Sequence[int], num_bytes: int, network: Network, root: int = 0, algorithm: Algorithm = "auto"
) -> Traffic:
    """Return the traffic of a collective on these ranks.

    Args:
        kind: "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather" or "scatter".
        ranks: Global ranks of the group.
        num_bytes: Payload as nccl-tests counts it: the whole tensor, gathered or before scattering.
        network: What it will run on.
        root: Group rank of the root, where there is one.
        algorithm: One by name, where the collective can be made that way; or "auto".
    """
    if len(ranks) == 1:
        return Traffic("ring", 0)
    possible: dict[str, Callable[[], Traffic]] = {"direct": lambda: direct(kind, ranks, num_bytes, root)}
    if kind in _RINGS:
        possible["ring"] = lambda: ring(kind, ranks, num_bytes, root)
    if kind in _TREES:
        possible["tree"] = lambda: tree(kind, ranks, num_bytes)
    if algorithm in possible:
        return possible[algorithm]()
    usual: list[str] = [name for name in ("ring", "tree") if name in possible] or ["direct"]
    return min((possible[name]() for name in usual), key=network.estimate_ns)


def ring(kind: str, ranks: Sequence[int], num_bytes: int, root: int) -> Traffic:
    """Return a ring: 2(N-1) steps of 1/N for all_reduce, N-1 for its halves, a chain for broadcast and reduce."""
    size = len(ranks)
    edges = [(ranks[place], ranks[(place + 1) % size]) for place in range(size)]
    if kind == "all_reduce":
        return Traffic("ring", 2 * (size - 1), dict.fromkeys(edges, 2 * (size - 1) / size * num_bytes))
    if kind in ("all_gather", "reduce_scatter"):
        return Traffic("ring", size - 1, dict.fromkeys(edges, (size - 1) / size * num_bytes))
    first = root if kind == "broadcast" else (root + 1) % size
    chain = [ranks[(first + place) % size] for place in range(size)]
    return Traffic("ring", size - 1, dict.fromkeys(pairwise(chain), float(num_bytes)))


def tree(kind: str, ranks: Sequence[int], num_bytes: int) -> Traffic:
    """Return a tree: 2 ceil(log2 N) steps for all_reduce, half of them for broadcast and reduce."""
    size = len(ranks)
    depth = math.ceil(math.log2(size))
    both = kind == "all_reduce"
    # In a double tree a rank is a leaf of one and an inner node of the other: twice the tensor passes each of its
    # ports, up and down together; one direction of that for broadcast and reduce. Neighbours stand for the edges.
    load = float(num_bytes) * (2 if both else 1)
    edges = {(ranks[place], ranks[(place + 1) % size]): load for place in range(size)}
    return Traffic("tree", (2 if both else 1) * depth, edges)


def direct(kind: str, ranks: Sequence[int], num_bytes: int, root: int) -> Traffic:
    """Return a direct exchange: every message goes straight from its source to its destination."""
    size = len(ranks)
    pairs = [(src, dst) for src in ranks for dst in ranks if src != dst]
    if kind == "all_reduce":
        return Traffic("direct", 1, dict.fromkeys(pairs, float(num_bytes)))
    if kind in ("all_gather", "reduce_scatter"):
        return Traffic("direct", 1, dict.fromkeys(pairs, num_bytes / size))
    center = ranks[root]
    share = num_bytes / size if kind in ("gather", "scatter") else float(num_bytes)
    outward = kind in ("broadcast", "scatter")
    others = [rank for rank in ranks if rank != center]
    return Traffic("direct", 1, {(center, other) if outward else (other, center): share for other in others})


def exchange(ranks: Sequence[int], sizes: Sequence[Sequence[int]]) -> Traffic:
    """Return the traffic of all_to_all; sizes[i][j] are the bytes from group rank i to j."""
    edges = {
        (ranks[src], ranks[dst]): float(num_bytes)
        for src, row in enumerate(sizes)
        for dst, num_bytes in enumerate(row)
        if src != dst and num_bytes
    }
    return Traffic("direct", 1, edges)
