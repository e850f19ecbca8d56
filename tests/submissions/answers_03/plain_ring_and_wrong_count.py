# base: solution
# loses: ring_cost, unequal_links
"""The design is the plain ring in the order of ranks, which is right and wins nothing; the tree's cost forgets to round up."""

# %% ring_cost
import math


def ring_seconds(num_bytes, world_size, latency_s, bandwidth_Bps):
    return 2 * (world_size - 1) * (latency_s + num_bytes / (world_size * bandwidth_Bps))


def tree_seconds(num_bytes, world_size, latency_s, bandwidth_Bps):
    return 2 * int(math.log2(world_size)) * (latency_s + num_bytes / bandwidth_Bps)


def bus_bandwidth(num_bytes, seconds, world_size):
    return 2 * (world_size - 1) / world_size * num_bytes / seconds

# %% unequal_links
def all_reduce_plans(num_ranks, ranks_per_node, slow_links):
    n, plans = num_ranks, []
    for rank in range(n):
        right, left, plan = (rank + 1) % n, (rank - 1) % n, []
        for s in range(n - 1):
            plan += [Send(s, (rank - s) % n, right), Recv(s, (rank - s - 1) % n, left), Reduce(s, (rank - s - 1) % n)]
        for s in range(n - 1):
            plan += [Send(n - 1 + s, (rank + 1 - s) % n, right), Recv(n - 1 + s, (rank - s) % n, left)]
        plans.append(plan)
    return plans
