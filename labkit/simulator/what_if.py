"""What a run does otherwise than its program says: the one thing that is changed to learn what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from types import FrameType

    from labkit.simulator.cluster import Cluster
    from labkit.simulator.rounds import Part
    from labkit.simulator.state import VirtualRank

FREE, LATER, JOINED = "free", "later", "joined"


class WhatIf(Protocol):
    """Is asked what is otherwise; values are the same either way, and only times differ."""

    def placed(self, cluster: Cluster) -> Cluster:
        """Return the cluster with its ranks where they are to be."""

    def collective(self, parts: list[Part]) -> str:
        """Return how a collective is otherwise, "" where it is not.

        FREE: it takes no time, and nobody waits in it. LATER: it takes its time, and nobody waits in it. JOINED: it is
        part of another message, and takes the time of its bytes alone.
        """

    def later(self, part: Part, ends_ns: int) -> None:
        """Note when a collective ends that the rank did not wait for."""

    def reads(self, frame: FrameType) -> bool:
        """Return whether the host does not wait for the value that it reads."""

    def share(self, rank: VirtualRank, frame: FrameType) -> float:
        """Return which share of its time an operator takes."""
