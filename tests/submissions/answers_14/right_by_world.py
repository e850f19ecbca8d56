# base: solution
"""One all-reduce over all replicas in a group of their own kind is not needed: the axes one after the other, stacked."""


# %% combine_gradients
def combine_gradients(weights, mesh, num_targets):
    sums = torch.full((), num_targets, dtype=torch.float64)
    replicas = [mesh.groups[axis] for axis in ("shard", "data")]
    for group in replicas:
        dist.all_reduce(sums, group=group)
    parts = [weight.parameter.grad.reshape(-1) * (num_targets / float(sums)) for weight in weights]
    flat = torch.cat(parts)
    for group in replicas:
        dist.all_reduce(flat, group=group)
    shards = []
    for weight, part in zip(weights, flat.split([len(each) for each in parts]), strict=True):
        part = part.clone()
        for group in [mesh.groups["tensor"]] * (weight.tensor == "tokens") + [mesh.ends] * bool(weight.tied and mesh.ends):
            dist.all_reduce(part, group=group)
        size = -(-len(part) // mesh.sizes["shard"])
        begin = size * mesh.place["shard"]
        shards.append(functional.pad(part[begin : begin + size], (0, size - len(part[begin : begin + size]))))
    return shards
