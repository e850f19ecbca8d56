# base: student
"""All right, in few lines: a fraction of each rank's own part is summed, the rest is map, where and set."""

# %% 0.1
def average(tensor):
    dist.all_reduce(tensor.mul_(1 / dist.get_world_size()))

# %% 0.2
def who_am_i(environ):
    return tuple(map(int, (environ["RANK"], environ["WORLD_SIZE"])))

# %% 0.3
def damaged(before, after):
    return [int(i) for i in torch.where(after.bool() & ~torch.isclose(after, before))[0]]

# %% 0.4
def never_heard(messages):
    return sorted(set(message.src for message in messages if message.received is None))
