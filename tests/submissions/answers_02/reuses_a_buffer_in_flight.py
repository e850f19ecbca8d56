# base: solution
# loses: ring_sum
"""ring_sum copies what it sends into one buffer, and fills that again before the last isend was waited for."""

# %% ring_sum
def ring_sum(tensor, group=None):
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    flat = tensor.view(-1)
    chunks = [flat[a:b] for a, b in chunk_bounds(flat.numel(), n)]
    if n == 1 or flat.numel() == 0:
        return
    outbox = torch.empty_like(max(chunks, key=len))
    pending = []
    for s in range(2 * n - 2):
        reducing = s < n - 1
        out = chunks[(rank - s) % n] if reducing else chunks[(rank + 1 - (s - n + 1)) % n]
        into = chunks[(rank - s - 1) % n] if reducing else chunks[(rank - (s - n + 1)) % n]
        outbox[: len(out)].copy_(out)
        if len(out):
            pending.append(dist.isend(outbox[: len(out)], group=group, group_dst=(rank + 1) % n))
        incoming = torch.empty_like(into)
        if len(into):
            dist.recv(incoming, group=group, group_src=(rank - 1) % n)
        if reducing:
            into += incoming
        else:
            into.copy_(incoming)
    for work in pending:
        work.wait()
