# base: student
"""All right: gathers what all have, asks for each name, walks through lists."""

# %% average
def average(tensor):
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor)
    tensor.copy_(torch.stack(parts).mean(0))

# %% who_am_i
def who_am_i(environ):
    for name in ("RANK", "WORLD_SIZE"):
        if name not in environ:
            raise KeyError(f"the launcher did not set {name}")
    return int(environ["RANK"]), int(environ["WORLD_SIZE"])

# %% damaged
def damaged(before, after):
    found = []
    for place in range(len(before)):
        if after[place] != 0 and after[place] != before[place]:
            found.append(place)
    return found

# %% never_heard
def never_heard(messages):
    lost = [m for m in messages if m.received is None]
    return [rank for rank in range(100) if any(m.src == rank for m in lost)]


# %% who_waits
labkit.answer("who_waits", rank=2, waits_in="all_reduce", cause="computes for longer")
