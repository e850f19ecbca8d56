"""How long the plans of an all-reduce take on the virtual cluster, without running them: messages, no additions."""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from labkit.plans.all_reduce_plan import Record, Recv, Send
from labkit.simulator.cluster import Cluster
from labkit.simulator.network import Network


@dataclass
class _Step:
    """What a rank waits for in the step it is in.

    Attributes:
        messages: How many of its messages have not arrived, or have not left.
        ends_ns: When the last of the others did.
    """

    messages: int
    ends_ns: int


def plan_ns(plans: Sequence[Sequence[Record]], cluster: Cluster, chunk_bytes: int) -> int:
    """Return when the last rank has carried out its plan, in nanoseconds of virtual time.

    A step posts its messages together and ends when all of them have left and arrived.

    Args:
        plans: One for each rank; they must be right (labkit.plans.all_reduce.execute finds no fault in them).
        cluster: The hardware.
        chunk_bytes: Of each chunk.
    """
    return _Run(plans, cluster, chunk_bytes).run()


class _Run:
    def __init__(self, plans: Sequence[Sequence[Record]], cluster: Cluster, chunk_bytes: int) -> None:
        self.network, self.chunk_bytes = Network(cluster), chunk_bytes
        self.left = [deque(list(step) for _, step in groupby(plan, key=lambda each: each.step)) for plan in plans]
        self.now: list[_Step] = [_Step(0, 0) for _ in plans]
        self.sends: dict[tuple[int, int], deque[int]] = defaultdict(deque)
        self.recvs: dict[tuple[int, int], deque[int]] = defaultdict(deque)
        self.ready: list[tuple[int, int, int]] = []

    def run(self) -> int:
        for rank in range(len(self.left)):
            self._go_on(rank)
        while self.ready:
            at_ns, src, dst = heapq.heappop(self.ready)
            passage = self.network.transfer(src, dst, self.chunk_bytes, at_ns)
            self._over(src, passage.left_ns)
            self._over(dst, passage.there_ns)
        return max(step.ends_ns for step in self.now)

    def _over(self, rank: int, at_ns: int) -> None:
        step = self.now[rank]
        step.messages -= 1
        step.ends_ns = max(step.ends_ns, at_ns)
        if not step.messages:
            self._go_on(rank)

    def _go_on(self, rank: int) -> None:
        """Begin the rank's next step that has messages."""
        at_ns = self.now[rank].ends_ns
        while self.left[rank]:
            messages = [each for each in self.left[rank].popleft() if isinstance(each, Send | Recv)]
            if not messages:
                continue
            self.now[rank] = _Step(len(messages), at_ns)
            for each in messages:
                way = (rank, each.peer) if isinstance(each, Send) else (each.peer, rank)
                posted, other = (self.sends, self.recvs) if isinstance(each, Send) else (self.recvs, self.sends)
                if other[way]:
                    heapq.heappush(self.ready, (max(at_ns, other[way].popleft()), *way))
                else:
                    posted[way].append(at_ns)
            return
