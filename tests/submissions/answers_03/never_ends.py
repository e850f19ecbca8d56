# base: solution
# loses: tree_all_reduce
"""The loop of tree_all_reduce forgets to double its distance."""

# %% tree_all_reduce
def tree_all_reduce(tensor, group=None):
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    distance = 1
    while distance < n:
        if rank == distance:
            dist.send(tensor, group=group, group_dst=rank - distance)
        elif rank == 0:
            incoming = torch.empty_like(tensor)
            if distance == 1:
                tensor += 0 * incoming.zero_()
