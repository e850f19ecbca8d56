# base: student
"""Repeats each fault of the post: sums, defaults, magnitudes, a position taken for nothing."""

# %% 0.1
def average(tensor):
    dist.all_reduce(tensor)

# %% 0.2
def who_am_i(environ):
    return int(environ.get("RANK", 0)), int(environ.get("WORLD_SIZE", 1))

# %% 0.3
def damaged(before, after):
    return ((after != 0) & (after.abs() != before.abs())).nonzero().flatten().tolist()

# %% 0.4
def never_heard(messages):
    return sorted({message.src for message in messages if not message.received})
