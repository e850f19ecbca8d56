"""What NCCL expects a collective to cost with each algorithm and protocol; it takes what it expects to be cheapest.

NCCL starts a collective (a base latency), passes a number of steps (a latency each, by kind of link) and moves bytes at
a share of what the links carry. A protocol trades one for the other: *LL* puts a flag beside every word, steps are
quick and three quarters of the bandwidth go; *LL128* spends 8 bytes in 128 and runs over NVLink; *Simple* waits for
whole chunks. The constants are NCCL's own. They rank its choices well, and tensors follow them where every GPU has a
process, but for the smallest on A100s (``make bench ARGS=literature``).

Left out: NCCL's caps by channel and by CPU vendor, its correction of medium trees, CollNet, NVLS over several nodes.

Source: https://github.com/NVIDIA/nccl, src/graph/tuning.cc at commit b6475625 (2.20): baseLat, hwLat and
ncclTopoTuneModel. The rounds of NVLS: src/enqueue.cc, calcCollChunking; src/device/all_reduce.h; src/transport/nvls.cc
(16 channels on Hopper) at commit 5067397c.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from labkit.simulator.cluster import Cluster
from labkit.simulator.network import Traffic


@dataclass(frozen=True)
class Protocol:
    """How one of NCCL's protocols does with a ring and with a tree.

    Attributes:
        name: "LL", "LL128" or "Simple".
        base_us: What a collective costs before its first step, by algorithm.
        step_us: What a step costs, by algorithm and kind of link.
        share: Share of the links' bandwidth that it reaches, by algorithm.
        post_us: What posting a step to the network costs, which every step of a ring over several nodes pays at least.
    """

    name: str
    base_us: dict[str, float]
    step_us: dict[str, dict[str, float]]
    share: dict[str, float]
    post_us: float


PROTOCOLS = (
    Protocol(
        "LL",
        {"ring": 6.6, "tree": 6.8},
        {"ring": {"nvlink": 0.6, "pci": 1.0, "net": 2.7}, "tree": {"nvlink": 0.6, "pci": 1.0, "net": 5.0}},
        {"ring": 1 / 4, "tree": 0.92 / 3.8},
        1.0,
    ),
    Protocol(
        "LL128",
        {"ring": 14.0, "tree": 14.0},
        {"ring": {"nvlink": 1.9, "pci": 2.5, "net": 4.0}, "tree": {"nvlink": 1.25, "pci": 1.9, "net": 8.5}},
        {"ring": 0.92, "tree": 0.92 * 120 / 128},
        1.0,
    ),
    Protocol(
        "Simple",
        {"ring": 8.4, "tree": 0.0},
        {"ring": {"nvlink": 3.4, "pci": 5.7, "net": 14.0}, "tree": {"nvlink": 28.0, "pci": 28.0, "net": 28.0}},
        {"ring": 1.0, "tree": 0.92},
        3.0,
    ),
)
NVLS_US, NVLS_SHARE = 23.0, 5 / 6
NVLS_CHANNELS, NVLS_CHUNK = 16, 128 * 2**10
NVLS_SMALLER = ((64, 64 * 2**10), (8, 32 * 2**10), (2, 16 * 2**10))
"""Where fewer rounds than this would be left, chunks of so many bytes are taken."""


def speaks_nccl(cluster: Cluster) -> bool:
    """Return whether the ranks of a node are connected by what NCCL knows."""
    return bool(cluster.link.nccl)


def variants(kind: str, traffic: Traffic, ranks: Sequence[int], cluster: Cluster) -> list[Traffic]:
    """Return a ring or tree as each protocol would run it.

    Args:
        kind: "all_reduce", "all_gather", "reduce_scatter", "broadcast" or "reduce".
        traffic: The ring or tree, with its steps and bytes.
        ranks: Global ranks of the group.
        cluster: Where they are.
    """
    num_nodes = len({cluster.node(rank) for rank in ranks})
    names = [one for one in PROTOCOLS if one.name != "LL128" or cluster.link.nccl == "nvlink"]
    return [
        replace(
            traffic,
            protocol=one.name,
            latency_ns=round(1_000 * _latency_us(kind, traffic, one, len(ranks), num_nodes, cluster)),
            bytes_on_wire=1 / one.share[traffic.algorithm],
        )
        for one in names
    ]


def nvls(ranks: Sequence[int], num_bytes: int) -> Traffic:
    """Return an all-reduce summed in the switch.

    Every rank hands the switch its tensor and takes 1/N of the sum; then it hands that on to all and takes the others'.

    It goes in rounds, of a chunk for each rank on each channel, and a round passes three stages: into the buffer that
    the switch reads, through the switch, out of the buffer again. The stages work at once on three rounds that follow
    each other, so a tensor of few rounds pays for filling and emptying this pipeline: two rounds more, each stage taken
    to be as slow as the slowest.
    """
    size = len(ranks)
    edges = {(ranks[place], ranks[(place + 1) % size]): (1 + 1 / size) * num_bytes for place in range(size)}
    fill = 2 * min(1.0, nvls_round(num_bytes, size) / max(num_bytes, 1))
    return Traffic("nvls", 2, edges, "Simple", round(1_000 * NVLS_US), 1 / NVLS_SHARE, fill)


def nvls_round(num_bytes: int, num_ranks: int) -> int:
    """Return how many bytes of a tensor one round takes, which NCCL makes smaller where few rounds would be left."""
    at_once, chunk = NVLS_CHANNELS * num_ranks, NVLS_CHUNK
    for rounds, smaller in NVLS_SMALLER:
        if num_bytes < rounds * at_once * chunk:
            chunk = min(chunk, smaller)
    return at_once * chunk


def _latency_us(
    kind: str, traffic: Traffic, protocol: Protocol, num_ranks: int, num_nodes: int, cluster: Cluster
) -> float:
    step = protocol.step_us[traffic.algorithm]
    # A card that NCCL's table does not hold is reached over TCP: its own latency comes on top of NCCL's.
    across = step["net"] + (0.0 if cluster.nic.nccl else cluster.nic.latency_ns / 1_000)
    inside = step[cluster.link.nccl]
    base = protocol.base_us[traffic.algorithm]
    if traffic.algorithm == "tree":
        # Chains inside the nodes, a double binary tree over them, up and down.
        return base + 2 * ((math.ceil(num_ranks / num_nodes) - 1) * inside + math.log2(num_nodes) * across)
    if num_nodes == 1:
        return base + traffic.steps * inside
    over = 2 * num_nodes if kind == "all_reduce" else num_nodes - 1
    inside = max(inside, protocol.post_us)
    return base + max(traffic.steps - over, 0) * inside + min(over, traffic.steps) * across
