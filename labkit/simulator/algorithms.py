"""Which messages a collective consists of, and which algorithm is taken.

The choice follows NCCL. Over NVLink, PCIe and InfiniBand all_reduce takes the cheapest of ring, tree and, in a node
whose switch can add, nvls, each with the protocol that suits its size (labkit.simulator.nccl); all_gather,
reduce_scatter, broadcast and reduce take a ring; what NCCL makes of point-to-point messages (all_to_all, gather,
scatter) is a direct exchange. Over any other link every step costs its latency, a tree has 2 log2(N) of them, and
broadcast and reduce may take one as well. Cheaper means by the estimate that NCCL goes by. No port of a tree carries
more than twice the tensor in each direction, as with NCCL's double binary trees.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from labkit.simulator.cluster import Algorithm, Cluster
from labkit.simulator.nccl import nvls, speaks_nccl, variants
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
        algorithm: One by name, where the collective can be made that way (else as "auto"); or "auto".
    """
    if len(ranks) == 1:
        return Traffic("ring", 0)
    key = (kind, tuple(ranks), num_bytes, root, algorithm)
    chosen = network.chosen.get(key)
    if chosen is None:
        candidates = _candidates(kind, ranks, num_bytes, network.cluster, root, algorithm)
        chosen = network.chosen[key] = min(candidates, key=network.estimate_ns)
    return chosen


def _candidates(
    kind: str, ranks: Sequence[int], num_bytes: int, cluster: Cluster, root: int, algorithm: Algorithm
) -> list[Traffic]:
    possible: dict[str, Callable[[], Traffic]] = {"direct": lambda: direct(kind, ranks, num_bytes, root)}
    if kind in _RINGS:
        possible["ring"] = lambda: ring(kind, ranks, num_bytes, root)
    if kind in _TREES:
        possible["tree"] = lambda: tree(kind, ranks, num_bytes, cluster)
    one_node = len({cluster.node(rank) for rank in ranks}) == 1
    if kind == "all_reduce" and cluster.link.sums_in_switch and one_node:
        possible["nvls"] = lambda: nvls(ranks, num_bytes)
    nccl = speaks_nccl(cluster)
    usual: list[str] = [name for name in ("ring", "tree", "nvls") if name in possible] or ["direct"]
    if nccl and kind != "all_reduce" and "ring" in possible:
        usual = ["ring"]
    found = []
    for name in [algorithm] if algorithm in possible else usual:
        traffic = possible[name]()
        found += variants(kind, traffic, ranks, cluster) if nccl and name in ("ring", "tree") else [traffic]
    return found


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


def tree(kind: str, ranks: Sequence[int], num_bytes: int, cluster: Cluster) -> Traffic:
    """Return a tree: 2 ceil(log2 N) steps for all_reduce, half of them for broadcast and reduce."""
    size = len(ranks)
    depth = math.ceil(math.log2(size))
    both = kind == "all_reduce"
    # In a double tree a rank is a leaf of one and an inner node of the other: twice the tensor passes each of its
    # ports, up and down together; one direction of that for broadcast and reduce. Neighbours stand for the edges.
    load = float(num_bytes) * (2 if both else 1)
    pairs = [(ranks[place], ranks[(place + 1) % size]) for place in range(size)]
    edges = dict.fromkeys(pairs, load)
    if len({cluster.node(rank) for rank in ranks}) == 2:
        # Of two nodes each is the root of one tree and the leaf of the other: the tensor crosses once each way.
        edges |= {(src, dst): float(num_bytes) for src, dst in pairs if cluster.node(src) != cluster.node(dst)}
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
