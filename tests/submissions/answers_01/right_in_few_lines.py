# base: solution
"""As little as will do: the pool's own map, the module itself as replica 0, one loop for the plan."""


# %% scatter_and_gather
def scatter(batch, devices):
    cut = [t.tensor_split(min(len(t), len(devices))) for t in batch.values()]
    return [dict(zip(batch, (p.to(d) for p in parts))) for d, *parts in zip(devices, *cut)]


def gather(outputs, device):
    return (torch.cat if outputs[0].dim() else torch.stack)([output.to(device) for output in outputs])


# %% replicate
def replicate(module, devices):
    tensors = [*module.parameters(), *module.buffers()]
    return [module] + [copy.deepcopy(module, {id(t): t.clone().to(d) for t in tensors}) for d in devices[1:]]


# %% parallel_apply
def parallel_apply(replicas, inputs):
    enabled = torch.is_grad_enabled()

    def apply(replica, batch):
        with torch.set_grad_enabled(enabled):
            return replica(**batch)

    with ThreadPoolExecutor(len(replicas)) as pool:
        outputs = pool.map(apply, replicas, inputs)
    return list(outputs)


# %% step_plan
def step_plan(sizes, input_bytes, output_bytes, model_bytes, gradient_bytes):
    kinds = (("inputs", 1, input_bytes, 0), ("model", 1, 0, model_bytes), ("outputs", 0, output_bytes, 0),
             ("output gradients", 1, output_bytes, 0), ("model gradients", 0, 0, gradient_bytes))
    return [
        Move(what, *((0, d) if out else (d, 0)), sizes[d] * each + whole)
        for what, out, each, whole in kinds
        for d in range(1, len(sizes))
    ]


# %% shares_by_speed
def shares_by_speed(num_samples, speeds):
    total = sum(speeds)
    shares = [num_samples * speed // total for speed in speeds]
    left = num_samples - sum(shares)
    for d in sorted(range(len(speeds)), key=lambda d: (num_samples * speeds[d]) % total, reverse=True)[:left]:
        shares[d] += 1
    return shares


def slowest_seconds(shares, speeds):
    return max(map(lambda a, b: a / b, shares, speeds))
