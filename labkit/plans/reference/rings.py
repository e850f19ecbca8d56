"""The plans of a ring all-reduce."""

from __future__ import annotations

from labkit.plans.all_reduce_plan import Record, Recv, Reduce, Send


def ring_plan(rank: int, world_size: int, num_chunks: int = 0) -> list[Record]:
    """Return one rank's plan of the ring all-reduce: reduce-scatter, then all-gather.

    Args:
        rank: Whose plan.
        world_size: Ranks.
        num_chunks: Chunks of the tensor; more than ranks take turns, chunk c goes the way of chunk c modulo world_size.
            0: as many as ranks.
    """
    plan: list[Record] = []
    right, left, chunks = (rank + 1) % world_size, (rank - 1) % world_size, num_chunks or world_size
    turns = -(-chunks // world_size)
    for step in range(2 * (world_size - 1) * turns):
        hop, later = step // turns, step % turns * world_size
        back, reduces = (hop, True) if hop < world_size - 1 else (hop - world_size, False)
        sent, arriving = (rank - back) % world_size + later, (rank - back - 1) % world_size + later
        plan += [Send(step, sent, right)] if sent < chunks else []
        if arriving < chunks:
            plan.append(Recv(step, arriving, left))
            plan += [Reduce(step, arriving)] if reduces else []
    return plan
