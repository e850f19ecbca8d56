# base: solution
# loses: ring_sum
"""ring_sum sends the whole tensor round the ring N-1 times: right sums, N/2 times the bytes."""

# %% ring_sum
def ring_sum(tensor, group=None):
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    travelling = tensor.clone()
    if tensor.numel() == 0:
        return
    for _ in range(n - 1):
        incoming = torch.empty_like(travelling)
        ops = [
            dist.P2POp(dist.isend, travelling, group=group, group_peer=(rank + 1) % n),
            dist.P2POp(dist.irecv, incoming, group=group, group_peer=(rank - 1) % n),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        tensor += incoming
        travelling = incoming
