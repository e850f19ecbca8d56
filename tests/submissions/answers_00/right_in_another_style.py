# base: student
"""All right: divides first, loops in place of tensors."""

# %% 0.1
def average(tensor):
    tensor /= dist.get_world_size()
    dist.all_reduce(tensor)

# %% 0.2
def who_am_i(environ):
    return tuple(int(environ[name]) for name in ("RANK", "WORLD_SIZE"))

# %% 0.3
def damaged(before, after):
    pairs = zip(before.tolist(), after.tolist())
    return [place for place, (was, now) in enumerate(pairs) if now != 0 and now != was]

# %% 0.4
def never_heard(messages):
    lost = []
    for message in messages:
        if message.received is None and message.src not in lost:
            lost.append(message.src)
    return sorted(lost)
