# base: solution
# loses: all_to_all
"""Every rank calls a blocking send before anybody receives, in all_to_all."""

# %% all_to_all
def all_to_all(outputs, inputs, group=None):
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    outputs[rank].copy_(inputs[rank])
    for other in range(n):
        if other != rank:
            dist.send(inputs[other], group=group, group_dst=other)
    for other in range(n):
        if other != rank:
            dist.recv(outputs[other], group=group, group_src=other)
