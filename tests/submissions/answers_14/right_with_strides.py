# base: solution
"""Strides instead of lists of places; torch's own subgroups; sums in another order; a search over sizes alone; keys and
values in one message."""


# %% mesh_groups
def strides(sizes):
    found, stride = {}, 1
    for axis, size in reversed(list(sizes.items())):
        found[axis] = stride
        stride *= size
    return found


def coordinates(rank, sizes):
    return {axis: rank // stride % sizes[axis] for axis, stride in reversed(strides(sizes).items())}


def ranks_along(rank, sizes, *axes):
    step, place = strides(sizes), coordinates(rank, sizes)
    found = [rank - sum(place[axis] * step[axis] for axis in axes)]
    for axis in axes:
        found = [each + n * step[axis] for each in found for n in range(sizes[axis])]
    return sorted(found)


def group_along(sizes, *axes):
    lists = sorted({tuple(ranks_along(rank, sizes, *axes)) for rank in range(dist.get_world_size())})
    group, _ = dist.new_subgroups_by_enumeration([list(each) for each in lists])
    return group


# %% who_gets_what
def my_samples(batch, microbatch, sizes, place):
    count, rest = divmod(batch, microbatch * sizes["data"] * sizes["shard"])
    if rest:
        raise ValueError(f"a batch of {batch} leaves {rest} over")
    mine = torch.arange(batch).view(sizes["data"], sizes["shard"], count, microbatch)
    return mine[place["data"], place["shard"]].tolist()


def dropout_seed(seed, sizes, place, is_cut):
    return hash((seed, place["data"], place["shard"], place["pipeline"], place["tensor"] if is_cut else -1))


# %% combine_gradients
def combine_gradients(weights, mesh, num_targets):
    counts = torch.tensor([num_targets], dtype=torch.float64)
    dist.all_reduce(counts, group=mesh.groups["shard"])
    dist.all_reduce(counts, group=mesh.groups["data"])
    shards = []
    for weight in weights:
        gradient = weight.parameter.grad.clone()
        if weight.tied and mesh.ends:
            dist.all_reduce(gradient, group=mesh.ends)
        if weight.tensor == "tokens":
            dist.all_reduce(gradient, group=mesh.groups["tensor"])
        size = mesh.sizes["shard"]
        flat = torch.cat([gradient.reshape(-1), gradient.new_zeros(-gradient.numel() % size)]) * num_targets
        mine = flat.new_empty(len(flat) // size)
        dist.reduce_scatter(mine, list(flat.chunk(size)), group=mesh.groups["shard"])
        dist.all_reduce(mine, group=mesh.groups["data"])
        shards.append(mine / counts.item())
    return shards


# %% clip_whole
def clip_whole(weights, shards, mesh, max_norm):
    copies = {"cut": 1, "whole": mesh.sizes["tensor"], "tokens": mesh.sizes["tensor"]}
    total = sum(
        shard.square().sum() / copies[weight.tensor] / (2 if weight.tied and mesh.ends else 1)
        for weight, shard in zip(weights, shards)
    )
    for group in (mesh.groups["tensor"], mesh.groups["pipeline"], mesh.groups["shard"]):
        dist.all_reduce(total, group=group)
    norm = total.sqrt().item()
    if norm > max_norm:
        for shard in shards:
            shard *= max_norm / (norm + 1e-6)
    return norm


# %% lay_out
def lay_out(job):
    found = []
    for plan in every_plan(job, microbatches=[1]):
        stages = plan.size("pipeline")
        tries = range(job.num_layers // stages + 1)
        held = [cost(job, replace(plan, recompute=(n,) * stages)).stage_bytes for n in tries]
        again = [next((n for n in tries if held[n][at] <= job.memory_bytes), -1) for at in range(stages)]
        found += [] if -1 in again else [replace(plan, recompute=tuple(again))]
    return min(found, key=lambda each: cost(job, each).seconds)


# %% context_ring
def shift(each, group):
    ranks = dist.get_process_group_ranks(group) if group else list(range(dist.get_world_size()))
    mine, received = ranks.index(dist.get_rank()), torch.empty_like(each)
    ends = [dist.P2POp(dist.irecv, received, ranks[mine - 1], group)]
    ends += [dist.P2POp(dist.isend, each.contiguous(), ranks[(mine + 1) % len(ranks)], group)]
    for work in dist.batch_isend_irecv(ends):
        work.wait()
    return received


def ring_forward(q, k, v, places, group=None):
    both, where, scale, outs, logs = torch.stack([k, v]), places, q.size(-1) ** -0.5, [], []
    for step in range(dist.get_world_size(group)):
        both, where = (shift(both, group), shift(where, group)) if step else (both, where)
        scores = torch.einsum("bhqd,bhkd->bhqk", q, both[0]) * scale
        scores = torch.where(where <= places[:, None], scores, torch.finfo(q.dtype).min)
        log = scores.logsumexp(-1, keepdim=True)
        if not step:
            out, total = scores.softmax(-1) @ both[1], log
            continue
        grown = torch.logaddexp(total, log)
        out = out * (total - grown).exp() + (scores - grown).exp() @ both[1]
        total = grown
    return out, total


def ring_backward(gradient, q, k, v, places, out, logsumexp, group=None):
    both, of_both, of_q = torch.stack([k, v]), torch.zeros(2, *k.shape, dtype=k.dtype), torch.zeros_like(q)
    scale, where = q.size(-1) ** -0.5, places
    for left in reversed(range(dist.get_world_size(group))):
        scores = torch.einsum("bhqd,bhkd->bhqk", q, both[0]) * scale - logsumexp
        weights = torch.where(where[None, :] <= places[:, None], scores.exp(), 0.0)
        slopes = weights * torch.einsum("bhqd,bhkd->bhqk", gradient, both[1])
        slopes = (slopes - weights * (gradient * out).sum(-1)[..., None]) * scale
        of_q = of_q + slopes @ both[0]
        of_both = shift(of_both + torch.stack([slopes.mT @ q, weights.mT @ gradient]), group)
        if left:
            both, where = shift(both, group), shift(where, group)
    return [of_q, *of_both]
