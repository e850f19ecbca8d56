"""What each rank of a run holds its memory in: a ledger, and on CUDA devices with streams an allocator."""

from __future__ import annotations

from functools import partial
from typing import Any

from labkit.simulator.caching_allocator import CachingAllocator
from labkit.simulator.garbage import Garbage
from labkit.simulator.memory import RankMemory
from labkit.simulator.state import Simulation, VirtualRank
from labkit.simulator.storages import holds
from labkit.simulator.streams import StreamEvent


def add_memories(simulation: Simulation, *, cuda: bool) -> list[RankMemory]:
    """Return the ledgers of all ranks, which are now part of their records.

    Args:
        simulation: The run.
        cuda: Whether ranks find their devices as CUDA devices.
    """
    garbage, device = Garbage(), simulation.cluster.device
    for rank in simulation.ranks:
        allocator = None
        if cuda and rank.process.device is not None:
            allocator = CachingAllocator(device.memory_bytes, partial(_record_event, rank))
        rank.record.memory = RankMemory(
            rank.rank, rank.clock, device.memory_bytes, device.name, simulation.sources, garbage,
            holds if cuda else None, allocator,
        )  # fmt: skip
    return [rank.record.memory for rank in simulation.ranks if rank.record.memory is not None]


def _record_event(rank: VirtualRank, queue: Any) -> StreamEvent:
    return rank.device.record_event(queue, rank.now_ns)
