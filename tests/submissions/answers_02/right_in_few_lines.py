# base: solution
"""Right in a terse style: comprehensions, match statements, one function that the others lean on."""

# %% count_bytes
root_bytes = lambda num_bytes, world_size: num_bytes * (world_size - 1) + (world_size - 1) * num_bytes
ring_bytes = lambda num_bytes, world_size: sum(num_bytes / world_size for _ in range(2 * world_size - 2))

# %% chunk_bounds
def chunk_bounds(numel, num_chunks):
    sizes = [len(range(i, numel, num_chunks)) for i in range(num_chunks)]
    return [(sum(sizes[:i]), sum(sizes[: i + 1])) for i in range(num_chunks)]

# %% ring_plan
def ring_plan(rank, world_size):
    n, half = world_size, world_size - 1
    return [
        record
        for s in range(2 * half)
        for record in (
            Send(s, (rank - s) % n, (rank + 1) % n) if s < half else Send(s, (rank + 1 - s + half) % n, (rank + 1) % n),
            Recv(s, (rank - s - 1) % n if s < half else (rank - s + half) % n, (rank - 1) % n),
            Reduce(s, (rank - s - 1) % n) if s < half else None,
        )
        if record
    ]

# %% run_plan
def run_plan(plan, chunks, group=None, combine=torch.add):
    for step in sorted({record.step for record in plan}):
        now = [record for record in plan if record.step == step and chunks[record.chunk].numel()]
        ops, arrived = [], {}
        for record in now:
            match record:
                case Send(_, chunk, peer):
                    ops.append(dist.P2POp(dist.isend, chunks[chunk], group=group, group_peer=peer))
                case Recv(_, chunk, peer):
                    arrived[chunk] = torch.empty_like(chunks[chunk])
                    ops.append(dist.P2POp(dist.irecv, arrived[chunk], group=group, group_peer=peer))
        [work.wait() for work in (dist.batch_isend_irecv(ops) if ops else [])]
        add = {record.chunk for record in now if isinstance(record, Reduce)}
        for chunk, data in arrived.items():
            combine(chunks[chunk], data, out=chunks[chunk]) if chunk in add else chunks[chunk].copy_(data)

# %% ring_sum
def ring_sum(tensor, group=None):
    n = dist.get_world_size(group)
    run_plan(ring_plan(dist.get_rank(group), n), list(tensor.view(-1).tensor_split(n)), group)
