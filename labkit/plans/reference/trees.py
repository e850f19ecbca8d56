"""The plans of an all-reduce along a binomial tree."""

from __future__ import annotations

from labkit.plans.all_reduce_plan import Record, Recv, Reduce, Send


def tree_plan(rank: int, world_size: int) -> list[Record]:
    """Return one rank's plan: the whole tensor, one chunk, goes up to rank 0 in log2 steps, its sum down in as many."""
    plan: list[Record] = []
    doublings = (world_size - 1).bit_length()
    for step in range(2 * doublings):
        up = step < doublings
        distance = 2 ** (step if up else 2 * doublings - 1 - step)
        if rank % (2 * distance) == distance:
            plan.append(Send(step, 0, rank - distance) if up else Recv(step, 0, rank - distance))
        elif rank % (2 * distance) == 0 and rank + distance < world_size:
            plan += [Recv(step, 0, rank + distance), Reduce(step, 0)] if up else [Send(step, 0, rank + distance)]
    return plan
