# base: solution
# loses: mesh_groups, combine_gradients, clip_whole, context_ring, expert_parallel
"""Sums every copy, counts both ends; the mesh is read column by column."""


# %% mesh_groups
def coordinates(rank, sizes):
    place = {}
    for axis, size in sizes.items():
        rank, place[axis] = divmod(rank, size)
    return place


def ranks_along(rank, sizes, *axes):
    mine, count = coordinates(rank, sizes), torch.Size(sizes.values()).numel()
    others = [axis for axis in sizes if axis not in axes]
    return [r for r in range(count) if all(coordinates(r, sizes)[axis] == mine[axis] for axis in others)]


def group_along(sizes, *axes):
    own = None
    for rank in range(dist.get_world_size()):
        ranks = ranks_along(rank, sizes, *axes)
        if ranks[0] == rank:
            group = dist.new_group(ranks)
            own = group if dist.get_rank() in ranks else own
    return own


# %% combine_gradients
def combine_gradients(weights, mesh, num_targets):
    shards = []
    for weight in weights:
        gradient = weight.parameter.grad.clone()
        dist.all_reduce(gradient)
        shards.append((gradient / dist.get_world_size()).flatten())
    return shards


# %% clip_whole
def clip_whole(weights, shards, mesh, max_norm):
    squares = sum(shard.square().sum() for shard in shards)
    dist.all_reduce(squares)
    for shard in shards:
        shard.mul_((max_norm / squares.sqrt()).clamp(max=1.0))
    return squares.sqrt()


# %% context_ring
def ring_forward(q, k, v, places, group=None):
    parts = [[torch.empty_like(each) for _ in range(dist.get_world_size(group))] for each in (k, v, places)]
    for part, each in zip(parts, (k, v, places)):
        dist.all_gather(part, each, group=group)
    keys, values, where = torch.cat(parts[0], 2), torch.cat(parts[1], 2), torch.cat(parts[2])
    scores = (q @ keys.mT / q.shape[-1] ** 0.5).masked_fill(where > places[:, None], float("-inf"))
    return scores.softmax(-1) @ values, scores.logsumexp(-1, keepdim=True)


def ring_backward(gradient, q, k, v, places, out, logsumexp, group=None):
    return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)


# %% expert_parallel
def expert_layer(x, router, experts, capacity, group=None):
    chances = (x @ router).softmax(-1)
    return x, (chances.mean(0) ** 2).sum() * router.shape[1]
