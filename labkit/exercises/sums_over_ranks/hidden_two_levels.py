"""All-reduce in two levels, as plans; and what ring, two levels and the best that is known take on a cluster."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from labkit.exercises.collectives.plan_time import plan_ns
from labkit.exercises.collectives.unequal_links.exercise import NUM_BYTES, cluster_of
from labkit.plans.all_reduce_plan import Record, Recv, Reduce, Send
from labkit.plans.reference.rings import ring_plan
from labkit.simulator.cluster import Cluster

Orders = Sequence[Sequence[int]]
"""Of each node, the order in which the ring inside it passes its ranks."""


def two_levels(orders: Orders, slices: int = 1, apart: int = 2) -> list[list[Record]]:
    """Return the plans of reduce-scatter inside nodes, all-reduce between them, all-gather inside.

    Args:
        orders: Of each node; ranks at equal positions exchange between nodes.
        slices: The tensor is cut into so many, which follow one another.
        apart: By so many steps.
    """
    nodes, size = len(orders), len(orders[0])
    plans: dict[int, list[Record]] = {}
    for node, order in enumerate(orders):
        for place, rank in enumerate(order):
            records: list[tuple[int, int, Record]] = []
            for part in range(slices):
                for number, step in enumerate(_steps(orders, node, place, part * nodes * size)):
                    at = number + part * apart
                    records += [(at, part, _moved(record, at)) for record in step]
            plans[rank] = [record for _, _, record in sorted(records, key=lambda each: each[:2])]
    return [plans[rank] for rank in range(nodes * size)]


def _moved(record: Record, step: int) -> Record:
    if isinstance(record, Reduce):
        return Reduce(step, record.chunk)
    return type(record)(step, record.chunk, record.peer)


def _steps(orders: Orders, node: int, place: int, first: int) -> Iterator[list[Record]]:
    """Yield the steps of one slice for one rank."""
    nodes, size = len(orders), len(orders[0])
    right, left = orders[node][(place + 1) % size], orders[node][(place - 1) % size]

    def piece(number: int) -> list[int]:
        return [first + number % size * nodes + part for part in range(nodes)]

    for step in range(size - 1):
        arriving = piece(place - step - 2)
        yield [
            *(Send(0, chunk, right) for chunk in piece(place - step - 1)),
            *(Recv(0, chunk, left) for chunk in arriving),
            *(Reduce(0, chunk) for chunk in arriving),
        ]
    mine = piece(place)
    up, down = orders[(node + 1) % nodes][place], orders[(node - 1) % nodes][place]
    for step in range(2 * (nodes - 1)):
        sent, came = mine[(node - step - 1) % nodes], mine[(node - step - 2) % nodes]
        records: list[Record] = [Send(0, sent, up), Recv(0, came, down)]
        yield [*records, Reduce(0, came)] if step < nodes - 1 else records
    for step in range(size - 1):
        yield [
            *(Send(0, chunk, right) for chunk in piece(place - step)),
            *(Recv(0, chunk, left) for chunk in piece(place - step - 1)),
        ]


def pars(num_ranks: int, ranks_per_node: int, slow: Sequence[tuple[int, int, float]]) -> list[float]:
    """Return microseconds: the ring in the order of ranks, two levels around slow links, the best that was found."""
    cluster = cluster_of(num_ranks, ranks_per_node, slow)
    ring = [ring_plan(rank, num_ranks) for rank in range(num_ranks)]
    orders = around(cluster)
    return [_us(ring, cluster), _us(two_levels(orders), cluster), _us(best(cluster, orders), cluster)]


def around(cluster: Cluster) -> Orders:
    """Return the orders in which the rings inside nodes pass no slow link, where that is possible."""
    size = cluster.gpus_per_node
    firsts = range(0, cluster.world_size, size)
    ways = [[(first, *rest) for rest in itertools.permutations(range(first + 1, first + size))] for first in firsts]
    return min(itertools.product(*ways), key=lambda each: _us(two_levels(each), cluster))


def best(cluster: Cluster, orders: Orders) -> list[list[Record]]:
    """Return the fastest plans of two levels in these orders: slices that follow one another."""
    most = 64 // cluster.world_size
    found = [two_levels(orders, slices, apart) for slices in range(1, most + 1) for apart in (1, 2)]
    return min(found, key=lambda plans: _us(plans, cluster))


def _us(plans: list[list[Record]], cluster: Cluster) -> float:
    chunks = 1 + max(record.chunk for plan in plans for record in plan)
    return plan_ns(plans, cluster, NUM_BYTES // chunks) / 1e3
