# base: student
"""The first four exercises are done, then time ran out."""

# %% naive_all_reduce
def naive_all_reduce(tensor):
    if dist.get_rank() == 0:
        other = torch.empty_like(tensor)
        for r in range(1, dist.get_world_size()):
            dist.recv(other, r)
            tensor += other
        for r in range(1, dist.get_world_size()):
            dist.send(tensor, r)
    else:
        dist.send(tensor, 0)
        dist.recv(tensor, 0)

# %% count_bytes
def root_bytes(num_bytes, world_size):
    return 2 * num_bytes * (world_size - 1)


def ring_bytes(num_bytes, world_size):
    return 2 * num_bytes * (world_size - 1) / world_size

# %% chunk_bounds
def chunk_bounds(numel, num_chunks):
    small = numel // num_chunks
    longer = numel - small * num_chunks
    starts = [i * small + min(i, longer) for i in range(num_chunks + 1)]
    return [(starts[i], starts[i + 1]) for i in range(num_chunks)]

# %% ring_plan
def ring_plan(rank, world_size):
    N = world_size
    plan = []
    for s in range(N - 1):
        plan += [Send(s, (rank - s) % N, (rank + 1) % N), Recv(s, (rank - 1 - s) % N, (rank - 1) % N)]
        plan += [Reduce(s, (rank - 1 - s) % N)]
    for s in range(N - 1):
        plan += [Send(N - 1 + s, (rank + 1 - s) % N, (rank + 1) % N), Recv(N - 1 + s, (rank - s) % N, (rank - 1) % N)]
    return plan
