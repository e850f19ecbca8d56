# base: student
"""All right, in few lines: a fraction of each rank's own part is summed, the rest is map, where and set."""

# %% average
def average(tensor):
    dist.all_reduce(tensor.mul_(1 / dist.get_world_size()))

# %% who_am_i
def who_am_i(environ):
    return tuple(map(int, (environ["RANK"], environ["WORLD_SIZE"])))

# %% damaged
def damaged(before, after):
    return [int(i) for i in torch.where(after.bool() & after.ne(before))[0]]

# %% never_heard
def never_heard(messages):
    return sorted(set(message.src for message in messages if message.received is None))


# %% who_waits
labkit.answer("who_waits", rank=2, waits_in="all_reduce", cause="computes for longer")
