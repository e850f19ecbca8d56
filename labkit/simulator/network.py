"""How long bytes take: latency and bandwidth (alpha-beta), with a queue at every port, so that contention is real.

An accelerator has one port out and one in. Inside a node a message passes the sender's port out and the receiver's
port in; between nodes it passes the sender's card out and the receiver's card in. A port serves one message after the
other, first come first served, at its rate; a message begins at a port when it has begun at the one before and the
port is free (cut-through), and is there when it has passed all of them and the latency is over. On a host whose ranks
share processor cores, moving bytes is work for these cores too.

The switch between the ports has no limit of its own: a fabric that cannot carry all its ports at once is not modelled.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from labkit.hardware import Link
from labkit.simulator.cluster import Cluster


class Port:
    """One direction of one plug.

    Attributes:
        name: "rank 3 out", "node 1 card 0 in".
        bytes_per_ns: Its rate.
        free_ns: When the last message booked on it has passed.
        busy_ns: How long it has been in use.
    """

    __slots__ = ("busy_ns", "bytes_per_ns", "free_ns", "name")

    def __init__(self, name: str, link: Link) -> None:
        self.name = name
        self.bytes_per_ns = link.payload_bytes_per_second / 1e9
        self.free_ns = 0
        self.busy_ns = 0

    def book(self, from_ns: int, num_bytes: float) -> tuple[int, int]:
        """Return when bytes that come at from_ns begin and end to pass; others come after them."""
        start_ns = from_ns if from_ns > self.free_ns else self.free_ns
        duration_ns = math.ceil(num_bytes / self.bytes_per_ns)
        self.free_ns = start_ns + duration_ns
        self.busy_ns += duration_ns
        return start_ns, self.free_ns


@dataclass(frozen=True)
class Traffic:
    """What a collective puts on the wire.

    Attributes:
        algorithm: "ring", "tree", "direct" or "nvls".
        steps: How many messages one after the other its longest way has.
        edges: (source, destination), global ranks -> bytes of payload from one to the other.
        protocol: NCCL's protocol, "" where NCCL has no part in it.
        latency_ns: What its steps cost before bytes count; None where each step costs the latency of its link.
        bytes_on_wire: Bytes that pass a port for each byte of payload.
        fill: What filling and emptying a pipeline of stages adds, as a share of what the bytes take; NCCL's own
            estimate does not know it.
        loads: Bytes on the wire at each port, once worked out: collectives of one size and group share their traffic.
    """

    algorithm: str
    steps: int
    edges: dict[tuple[int, int], float] = field(default_factory=dict)
    protocol: str = ""
    latency_ns: int | None = None
    bytes_on_wire: float = 1.0
    fill: float = 0.0
    loads: dict[Port, float] = field(default_factory=dict, init=False, compare=False, repr=False)


class Passage(NamedTuple):
    """When a message moves.

    Attributes:
        leaves_ns: Its first byte leaves the sender; before, it waited for the port.
        left_ns: The sender's buffer is read.
        comes_ns: Its first byte passes the receiver's port, latency left out.
        there_ns: It is there.
    """

    leaves_ns: int
    left_ns: int
    comes_ns: int
    there_ns: int


class Cores:
    """The processor cores of a host, which its ranks and the threads that move their bytes share."""

    __slots__ = ("free_ns",)

    def __init__(self, num_cores: int) -> None:
        """Begin with all cores free."""
        self.free_ns = [0] * num_cores

    def run(self, from_ns: int, duration_ns: int) -> tuple[int, int]:
        """Return when an operator that can begin at from_ns begins and ends: on the core that is free first."""
        core = min(range(len(self.free_ns)), key=self.free_ns.__getitem__)
        start_ns = max(from_ns, self.free_ns[core])
        self.free_ns[core] = start_ns + duration_ns
        return start_ns, self.free_ns[core]

    def share(self, from_ns: int, work_ns: int) -> int:
        """Return when work that can begin at from_ns and be spread over all cores is done."""
        if not work_ns:
            return from_ns
        free = sorted(max(from_ns, at) for at in self.free_ns)
        # The cores that are free first begin, others join them when they become free.
        for count in range(1, len(free) + 1):
            ends_ns = (sum(free[:count]) + work_ns) / count
            if count == len(free) or ends_ns <= free[count]:
                break
        done_ns = math.ceil(ends_ns)
        self.free_ns = [max(at, done_ns) for at in self.free_ns]
        return done_ns


class Network:
    """The ports of a cluster.

    Attributes:
        cluster: The hardware.
        chosen: The traffic of collectives seen before, so that the same one is planned once.
        cut: Links, (source, destination), over which nothing comes.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.cut: set[tuple[int, int]] = set()
        self.chosen: dict[object, Traffic] = {}
        self._ports: dict[tuple[str, int, int, str], Port] = {}
        self._ways: dict[tuple[int, int], tuple[Port, Port, float, int]] = {}
        self._cores: dict[int, Cores] = {}
        self._random = random.Random(f"{cluster.seed} network")

    def cores(self, rank: int) -> Cores | None:
        """Return the cores that this rank computes on with the others of its node; None where it has its own device."""
        if self.cluster.device.cores is None:
            return None
        node = self.cluster.node(rank)
        if node not in self._cores:
            self._cores[node] = Cores(self.cluster.device.cores)
        return self._cores[node]

    def is_cut(self, edges: Iterable[tuple[int, int]]) -> bool:
        """Return whether one of these links, (source, destination), is cut."""
        return bool(self.cut) and any(edge in self.cut for edge in edges)

    def latency_ns(self, src: int, dst: int) -> int:
        """Return the latency from one rank to another, 0 to itself."""
        if src == dst:
            return 0
        same_node = self.cluster.node(src) == self.cluster.node(dst)
        return (self.cluster.link if same_node else self.cluster.nic).latency_ns

    def transfer(self, src: int, dst: int, num_bytes: int, now_ns: int) -> Passage:
        """Return when a message passes its sender's port and its receiver's, both ends being ready at now_ns."""
        if src == dst:
            copied_ns = now_ns + math.ceil(num_bytes / self._copy_bytes_per_ns())
            return Passage(now_ns, copied_ns, now_ns, copied_ns)
        way = self._ways.get((src, dst))
        if way is None:
            out, into = self._way(src, dst)
            slow = self.cluster.slow_links.get((src, dst), 1.0)
            way = self._ways[src, dst] = out, into, slow, self.latency_ns(src, dst)
        out, into, slow, latency_ns = way
        weighted = num_bytes * slow * self._jitter()
        leaves_ns, left_ns = out.book(now_ns, weighted)
        comes_ns, there_ns = into.book(leaves_ns, weighted)
        if self.cluster.link.host_bytes_per_second is not None:
            left_ns = max(left_ns, self._moved_by_cores({(src, dst): weighted}, now_ns))
        return Passage(leaves_ns, left_ns, comes_ns, max(left_ns, there_ns) + latency_ns)

    def collective(self, traffic: Traffic, now_ns: int) -> tuple[int, int]:
        """Return when a collective that all ranks have joined at now_ns begins to move, and when it is complete.

        Every port carries its share as one block; the slowest one, with whatever queues before it, decides, and the
        latency of the steps comes on top. That is exact for a ring and for direct exchange on free ports.
        """
        latency_ns, loads = self._latency_of(traffic), self._loads(traffic)
        if traffic.fill:
            latency_ns += math.ceil(traffic.fill * _longest_ns(loads))
        ends_ns = self._moved_by_cores(traffic.edges, now_ns) + latency_ns
        begins_ns = []
        for port, num_bytes in loads.items():
            port_begins, port_ends = port.book(now_ns, num_bytes * self._jitter())
            begins_ns.append(port_begins)
            ends_ns = max(ends_ns, port_ends + latency_ns)
        return min(begins_ns, default=now_ns), ends_ns

    def _moved_by_cores(self, edges: dict[tuple[int, int], float], now_ns: int) -> int:
        """Return when the hosts' cores have moved these bytes, now where moving costs them nothing."""
        rate = self.cluster.link.host_bytes_per_second
        if rate is None:
            return now_ns
        per_node: dict[int, float] = {}
        for (src, dst), num_bytes in edges.items():
            # Half of the work is the sender's, half the receiver's.
            for rank in (src, dst):
                node = self.cluster.node(rank)
                per_node[node] = per_node.get(node, 0.0) + num_bytes / 2
        done_ns = now_ns
        for node, num_bytes in per_node.items():
            cores = self.cores(node * self.cluster.gpus_per_node)
            if cores is not None:
                work_ns = num_bytes / rate * 1e9 * len(cores.free_ns)
                done_ns = max(done_ns, cores.share(now_ns, math.ceil(work_ns)))
        return done_ns

    def estimate_ns(self, traffic: Traffic) -> int:
        """Return how long NCCL would expect the collective to take: on free ports, without jitter and fill."""
        return self._latency_of(traffic) + math.ceil(_longest_ns(self._loads(traffic)))

    def _latency_of(self, traffic: Traffic) -> int:
        if traffic.latency_ns is not None:
            return traffic.latency_ns
        ways = [self.latency_ns(src, dst) for src, dst in traffic.edges]
        steps_ns = math.ceil(traffic.steps * sum(ways) / len(ways)) if ways else 0
        return steps_ns + self.cluster.link.collective_ns

    def _loads(self, traffic: Traffic) -> dict[Port, float]:
        loads, cluster = traffic.loads, self.cluster
        if loads:
            return loads
        for (src, dst), num_bytes in traffic.edges.items():
            weighted = num_bytes * traffic.bytes_on_wire * cluster.slow_links.get((src, dst), 1.0)
            if cluster.node(src) == cluster.node(dst):
                for port in self._way(src, dst):
                    loads[port] = loads.get(port, 0.0) + weighted
                continue
            # A collective crosses nodes on all cards at once, as NCCL does with one channel per card.
            for node, way in ((cluster.node(src), "out"), (cluster.node(dst), "in")):
                for card in range(cluster.nics_per_node):
                    port = self._port("card", node, card, way, cluster.nic)
                    loads[port] = loads.get(port, 0.0) + weighted / cluster.nics_per_node
        return loads

    def _way(self, src: int, dst: int) -> tuple[Port, Port]:
        cluster = self.cluster
        if cluster.node(src) == cluster.node(dst):
            return self._port("rank", src, 0, "out", cluster.link), self._port("rank", dst, 0, "in", cluster.link)
        return (
            self._port("card", cluster.node(src), cluster.nic_of(src), "out", cluster.nic),
            self._port("card", cluster.node(dst), cluster.nic_of(dst), "in", cluster.nic),
        )

    def _port(self, kind: str, owner: int, number: int, way: str, link: Link) -> Port:
        key = (kind, owner, number, way)
        port = self._ports.get(key)
        if port is None:
            name = f"rank {owner} {way}" if kind == "rank" else f"node {owner} card {number} {way}"
            port = self._ports[key] = Port(name, link)
        return port

    def _copy_bytes_per_ns(self) -> float:
        device = self.cluster.device
        return device.memory_bytes_per_second * device.memory_share / 2 / 1e9

    def _jitter(self) -> float:
        return 1.0 + self.cluster.jitter * self._random.random() if self.cluster.jitter else 1.0


def _longest_ns(loads: dict[Port, float]) -> float:
    return max((load / port.bytes_per_ns for port, load in loads.items()), default=0.0)
