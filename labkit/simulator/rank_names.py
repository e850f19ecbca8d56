"""What a rank finds in its environment of where it is, as a launcher tells it."""

from __future__ import annotations

from labkit.simulator.cluster import Cluster


def names_of(cluster: Cluster, rank: int, cuda: bool) -> dict[str, str]:
    """Return the variables of a rank.

    Args:
        cluster: Where it is.
        rank: Its number.
        cuda: Whether it finds its accelerator as a CUDA device.
    """
    here = sum(cluster.node(other) == cluster.node(rank) for other in range(cluster.world_size))
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(cluster.local_rank(rank)),
        "WORLD_SIZE": str(cluster.world_size),
        "LOCAL_WORLD_SIZE": str(here),
        "GROUP_RANK": str(cluster.node(rank)),
        "GROUP_WORLD_SIZE": str(cluster.num_nodes),
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(cluster.world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "LABKIT_DEVICE": f"cuda:{cluster.local_rank(rank)}" if cuda else "cpu",
    }
