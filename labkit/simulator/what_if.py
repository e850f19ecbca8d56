"""What a run does otherwise than its program says: the one thing that is changed to learn what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from labkit.simulator.cluster import Cluster
    from labkit.simulator.record import Row
    from labkit.simulator.rounds import Part
    from labkit.simulator.state import VirtualRank

FREE, JOINED = "free", "joined"


class WhatIf(Protocol):
    """Is asked what is otherwise; values are the same either way, and only times differ."""

    def placed(self, cluster: Cluster) -> Cluster:
        """Return the cluster with its ranks where they are to be."""

    def collective(self, parts: list[Part]) -> str:
        """Return how a collective is otherwise, "" where it is not.

        FREE: it takes no time, and nobody waits in it. JOINED: it is part of another message, and takes the time of
        its bytes alone.
        """

    def puts_off(self, rank: VirtualRank, row: Row, wait: Callable[[], object]) -> bool:
        """Return whether a rank goes on without waiting for a collective; then wait() waits for it, another time."""

    def reads(self, frame: FrameType) -> bool:
        """Return whether the host does not wait for the value that it reads."""

    def share(self, rank: VirtualRank, frame: FrameType, name: str, values: Any) -> float:
        """Return which share of its time an operator with this name and these arguments takes, 0 for none."""
