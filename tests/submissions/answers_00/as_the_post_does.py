# base: student
# loses: average, never_heard, who_am_i, damaged
"""Repeats each fault of the post: sums, defaults, magnitudes, a position taken for nothing."""

# %% average
def average(tensor):
    dist.all_reduce(tensor)

# %% who_am_i
def who_am_i(environ):
    return int(environ.get("RANK", 0)), int(environ.get("WORLD_SIZE", 1))

# %% damaged
def damaged(before, after):
    return ((after != 0) & (after.abs() != before.abs())).nonzero().flatten().tolist()

# %% never_heard
def never_heard(messages):
    return sorted({message.src for message in messages if not message.received})
