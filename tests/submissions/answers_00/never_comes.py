# base: solution
# loses: average
"""Rank 0 leaves before the all_reduce: a deadlock."""

# %% average
def average(tensor):
    if dist.get_rank() == 0:
        return
    dist.all_reduce(tensor)
    tensor /= dist.get_world_size()
