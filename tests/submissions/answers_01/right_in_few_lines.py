# base: solution
"""As little as will do: a pool of threads, the module itself as replica 0, one loop for the plan."""


# %% scatter
def scatter(value, devices):
    first = next((t for t in flat(value) if t.dim()), None)
    count = len(devices) if first is None else min(len(devices), len(first))
    return [cut(value, number, count, device) for number, device in zip(range(count), devices)]


def flat(value):
    if isinstance(value, Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return [tensor for item in items for tensor in flat(item)]


def cut(value, number, count, device):
    if isinstance(value, Tensor):
        return (value.tensor_split(count)[number] if value.dim() else value).to(device)
    if isinstance(value, (tuple, list)):
        return type(value)([cut(item, number, count, device) for item in value])
    if isinstance(value, dict):
        return {key: cut(item, number, count, device) for key, item in value.items()}
    return value


# %% gather
def gather(outputs, device):
    match outputs[0]:
        case Tensor() as first:
            return (torch.cat if first.dim() else torch.stack)([output.to(device) for output in outputs])
        case dict() as first:
            return {key: gather([output[key] for output in outputs], device) for key in first}
        case tuple() | list() as first:
            return type(first)(gather([o[i] for o in outputs], device) for i in range(len(first)))
        case first:
            return first


# %% replicate
def replicate(module, devices):
    tensors = [*module.parameters(), *module.buffers()]
    return [module] + [copy.deepcopy(module, {id(t): t.clone().to(d) for t in tensors}) for d in devices[1:]]


# %% parallel_apply
def parallel_apply(replicas, inputs):
    enabled = torch.is_grad_enabled()

    def apply(replica, given):
        with torch.set_grad_enabled(enabled):
            return replica(*given[0], **given[1])

    with ThreadPoolExecutor(len(replicas)) as pool:
        futures = [pool.submit(apply, *pair) for pair in zip(replicas, inputs)]
    for number, future in enumerate(futures):
        if future.exception():
            future.exception().add_note(f"It was replica {number}.")
            raise future.exception()
    return [future.result() for future in futures]


# %% mini_data_parallel
class MiniDataParallel(nn.Module):
    def __init__(self, module, devices):
        super().__init__()
        self.module, self.devices = module, devices

    def forward(self, *arguments, **keywords):
        pieces = scatter((arguments, keywords), self.devices)
        return gather(parallel_apply(replicate(self.module, self.devices[: len(pieces)]), pieces), self.devices[0])


# %% whole_batch_loss
def whole_batch_loss(losses, counts):
    return sum(loss * count for loss, count in zip(losses, counts) if count) / sum(counts)


# %% step_plan
def step_plan(sizes, input_bytes, output_bytes, model_bytes, gradient_bytes):
    kinds = (("inputs", 1, input_bytes, 0), ("model", 1, 0, model_bytes), ("outputs", 0, output_bytes, 0),
             ("output gradients", 1, output_bytes, 0), ("model gradients", 0, 0, gradient_bytes))
    return [
        Move(what, *((0, d) if out else (d, 0)), sizes[d] * each + whole)
        for what, out, each, whole in kinds
        for d in range(1, len(sizes))
    ]


# %% plan_cost
def port_bytes(plan, num_devices):
    ports = dict.fromkeys(range(num_devices), 0)
    for move in plan:
        for end in {move.src, move.dst}:
            ports[end] += move.num_bytes
    return list(ports.values())


def plan_seconds(plan, latency_s, bandwidth_Bps):
    seconds = 0.0
    for move in plan:
        seconds += latency_s + move.num_bytes / bandwidth_Bps
    return seconds


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


# %% split_loader
class SplitLoader:
    def __init__(self, dataset, batch_size, speeds, shuffle=True, seed=0):
        vars(self).update(dataset=dataset, batch_size=batch_size, speeds=speeds, shuffle=shuffle)
        self.random = random.Random(seed)

    def __len__(self):
        return len(range(0, len(self.dataset), self.batch_size))

    def __iter__(self):
        count = len(self.dataset)
        order = self.random.sample(range(count), count) if self.shuffle else range(count)
        for start in range(0, count, self.batch_size):
            batch = iter(order[start : start + self.batch_size])
            size = min(self.batch_size, count - start)
            pieces = {}
            for device, share in enumerate(shares_by_speed(size, self.speeds)):
                if share:
                    pairs = [self.dataset[next(batch)] for _ in range(share)]
                    pieces[device] = [torch.stack(each) for each in zip(*pairs)]
            yield pieces
