# base: solution
# loses: average, who_am_i
"""Right for the world shown first: divides by four, and knows one machine only."""

# %% average
def average(tensor):
    dist.all_reduce(tensor)
    tensor /= 4

# %% who_am_i
def who_am_i(environ):
    return int(environ["LOCAL_RANK"]), int(environ["LOCAL_WORLD_SIZE"])
