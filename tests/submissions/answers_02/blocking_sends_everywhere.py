# base: solution
# loses: ring_sum
"""Every rank calls a blocking send before anybody receives, in ring_sum."""

# %% ring_sum
def ring_sum(tensor, group=None):
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    flat = tensor.view(-1)
    chunks = [flat[a:b] for a, b in chunk_bounds(flat.numel(), n)]
    for s in range(n - 1):
        dist.send(chunks[(rank - s) % n], group=group, group_dst=(rank + 1) % n)
        incoming = torch.empty_like(chunks[(rank - s - 1) % n])
        dist.recv(incoming, group=group, group_src=(rank - 1) % n)
        chunks[(rank - s - 1) % n] += incoming
    for s in range(n - 1):
        dist.send(chunks[(rank + 1 - s) % n], group=group, group_dst=(rank + 1) % n)
        dist.recv(chunks[(rank - s) % n], group=group, group_src=(rank - 1) % n)
