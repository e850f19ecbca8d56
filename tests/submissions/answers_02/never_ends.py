# base: solution
# loses: naive_all_reduce
"""In naive_all_reduce, rank 0 forgets to go on to the next peer."""

# %% naive_all_reduce
def naive_all_reduce(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        peer, taken = 1, False
        incoming = torch.empty_like(tensor)
        while peer < n:
            if not taken:
                dist.recv(incoming, src=peer)
                tensor += incoming
                taken = True
        for peer in range(1, n):
            dist.send(tensor, dst=peer)
    else:
        dist.send(tensor, dst=0)
        dist.recv(tensor, src=0)
