# base: solution
# loses: chunk_bounds
"""The remainder of numel // num_chunks is lost, and with it the end of every tensor whose length does not divide."""

# %% chunk_bounds
def chunk_bounds(numel, num_chunks):
    size = numel // num_chunks
    return [(i * size, (i + 1) * size) for i in range(num_chunks)]
