# base: student
"""All right: divides first, loops in place of tensors."""

# %% average
def average(tensor):
    tensor /= dist.get_world_size()
    dist.all_reduce(tensor)

# %% who_am_i
def who_am_i(environ):
    return tuple(int(environ[name]) for name in ("RANK", "WORLD_SIZE"))

# %% damaged
def damaged(before, after):
    pairs = zip(before.tolist(), after.tolist())
    return [place for place, (was, now) in enumerate(pairs) if now != 0 and now != was]

# %% never_heard
def never_heard(messages):
    lost = []
    for message in messages:
        if message.received is None and message.src not in lost:
            lost.append(message.src)
    return sorted(lost)


# %% who_waits
labkit.answer("who_waits", rank=2, waits_in="all_reduce", cause="computes for longer")
