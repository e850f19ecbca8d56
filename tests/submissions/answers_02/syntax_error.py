# base: solution
# loses: ring_sum
"""All is right but for a forgotten bracket in ring_sum; nothing else leans on that cell."""

# %% ring_sum
def ring_sum(tensor, group=None):
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    flat = tensor.view(-1)
    chunks = [flat[start:end] for start, end in chunk_bounds(flat.numel(), world_size)
    run_plan(ring_plan(rank, world_size), chunks, group)
