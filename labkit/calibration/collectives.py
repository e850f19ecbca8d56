"""What a collective takes on a host beyond its messages: gloo and NCCL run it on threads and kernels of their own."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import mean

from labkit.hardware import Hardware
from labkit.simulator.algorithms import choose
from labkit.simulator.cluster import describe
from labkit.simulator.network import Network

Reduced = tuple[int, int, float]
"""Ranks, bytes, and the seconds that an all_reduce of them took, on average."""


def beyond_messages_ns(host: Hardware, reduced: Iterable[Reduced]) -> int:
    """Return how much longer all-reduces took on average than their messages alone take on this host.

    A thread that waits for a core makes one all_reduce take 4 ms and leaves the next at 1: only means add up.
    """
    beyond_ns = []
    for num_ranks, num_bytes, seconds in reduced:
        network = Network(describe(num_ranks, gpu=host))
        _, ends_ns = network.collective(choose("all_reduce", range(num_ranks), num_bytes, network), 0)
        beyond_ns.append(seconds * 1e9 - host.link.post_ns - ends_ns)
    return max(round(mean(beyond_ns)), 0) if beyond_ns else 0
