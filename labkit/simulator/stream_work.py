"""The handle of an operation on a stream: waiting for it holds up the current stream, and not the host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import torch

from labkit.simulator.clock import Event
from labkit.simulator.state import VirtualRank, the_rank
from labkit.simulator.storages import storages_of
from labkit.simulator.streams import Communication
from labkit.simulator.virtual_work import VirtualWork


def settle(rank: VirtualRank, tensors: Iterable[torch.Tensor] | None = None) -> None:
    """Have what a rank is owed: all of it, or what lies in the storages of these tensors."""
    storages = None if tensors is None else _addresses(tensors)
    for work in list(rank.process.owed):
        if storages is None or work.touches(storages):
            work.settle(rank)


class StreamWork(VirtualWork):
    """What isend, irecv and collectives return where a device computes beside its host."""

    def __init__(
        self,
        *operation: Any,
        communication: Communication,
        known: Event | None,
        buffers: Sequence[torch.Tensor],
        holds_host: bool = False,
    ) -> None:
        """Begin to stand for an operation.

        Args:
            *operation: What every handle is told.
            communication: Its place on the stream of its group.
            known: Fired when its results are known, at no time; None where it has none for this rank.
            buffers: The tensors it was given.
            holds_host: Whether the host waits for it, as for a barrier.
        """
        super().__init__(*operation)
        self._communication, self._known, self._holds_host = communication, known, holds_host
        self._buffers = buffers

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Return True, and let the current stream wait; as NCCL's own, it takes no notice of a time limit."""
        rank = the_rank()
        if self._goes_on(rank):
            return True
        note = None if self._done else self._wait_row(rank)
        rank.device.wait(rank.queue(), self._communication.event, rank.now_ns, note)
        if self._holds_host:
            self._host_waits(rank, None)
        if not self._done:
            scheduler = rank.simulation.scheduler
            if self._known is None or scheduler.wait_unless_stuck(rank.clock.number, self._known, self._waiting):
                self._complete()
            elif self not in rank.process.owed:
                rank.process.owed.append(self)
        return True

    def _waits_now(self, rank: VirtualRank) -> None:
        rank.device.wait(rank.queue(), self._communication.event, rank.now_ns)

    def _complete(self) -> None:
        self._buffers = ()
        super()._complete()

    def settle(self, rank: VirtualRank) -> None:
        """Wait until what it yields is known: somebody touches it, or one of its buffers."""
        rank.process.owed.remove(self)
        if not self._done:
            assert self._known is not None
            rank.simulation.scheduler.wait(rank.clock.number, self._known, self._waiting)
            self._complete()

    def touches(self, storages: set[int]) -> bool:
        """Return whether any of its buffers lies in these storages, which their addresses name."""
        return not storages.isdisjoint(_addresses(self._buffers))

    def is_completed(self) -> bool:
        """Return whether the device has done it by now."""
        happened = self._has_happened()
        if happened and not self._done:
            self._complete()
        return happened


def _addresses(tensors: Iterable[torch.Tensor]) -> set[int]:
    return {storage.data_ptr() for tensor in tensors for storage in storages_of(tensor)}
