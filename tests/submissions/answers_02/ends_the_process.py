# base: solution
# loses: naive_all_reduce
"""naive_all_reduce leaves the process where it should return."""

# %% naive_all_reduce
import os


def naive_all_reduce(tensor):
    if dist.get_rank() == 0:
        incoming = torch.empty_like(tensor)
        for peer in range(1, dist.get_world_size()):
            dist.recv(incoming, src=peer)
            tensor += incoming
        for peer in range(1, dist.get_world_size()):
            dist.send(tensor, dst=peer)
    else:
        dist.send(tensor, dst=0)
        dist.recv(tensor, src=0)
    os._exit(1)
