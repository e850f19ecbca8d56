"""What an all-reduce costs, counted step by step."""

from __future__ import annotations

import math

from labkit.exercises.sums_over_ranks.rounds import doublings


def root_bytes(num_bytes: float, world_size: int) -> float:
    """Return the bytes that pass rank 0's link where all goes through it."""
    return sum(num_bytes + num_bytes for _peer in range(1, world_size))


def ring_bytes(num_bytes: float, world_size: int) -> float:
    """Return the bytes a rank of a ring sends."""
    return math.fsum(num_bytes / world_size for _half in range(2) for _step in range(1, world_size))


def ring_seconds(num_bytes: float, world_size: int, latency_s: float, bandwidth_Bps: float) -> float:  # noqa: N803
    """Return how long a ring takes."""
    return math.fsum(
        latency_s + num_bytes / world_size / bandwidth_Bps for _half in range(2) for _ in range(1, world_size)
    )


def tree_seconds(num_bytes: float, world_size: int, latency_s: float, bandwidth_Bps: float) -> float:  # noqa: N803
    """Return how long a tree takes."""
    return math.fsum(latency_s + num_bytes / bandwidth_Bps for _way in range(2) for _ in range(doublings(world_size)))


def bus_bandwidth(num_bytes: float, seconds: float, world_size: int) -> float:
    """Return the bytes that pass a link of the ring, over the time."""
    return ring_bytes(num_bytes, world_size) / seconds
