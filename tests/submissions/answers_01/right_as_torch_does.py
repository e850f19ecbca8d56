# base: solution
"""Shallow replicas, pieces cut by hand, exceptions wrapped in others of their type: nearer to torch's own code."""


# %% scatter
def piece_bounds(count, pieces):
    size, more = divmod(count, pieces)
    start = 0
    for number in range(pieces):
        end = start + size + (1 if number < more else 0)
        yield start, end
        start = end


def scatter(value, devices):
    def scatter_map(obj):
        if isinstance(obj, torch.Tensor):
            if obj.ndim == 0:
                return [obj.to(device) for device in devices]
            bounds = piece_bounds(obj.shape[0], min(obj.shape[0], len(devices)))
            return [obj[start:end].to(device) for (start, end), device in zip(bounds, devices)]
        if isinstance(obj, tuple) and len(obj) > 0:
            return list(zip(*map(scatter_map, obj)))
        if isinstance(obj, list) and len(obj) > 0:
            return [list(i) for i in zip(*map(scatter_map, obj))]
        if isinstance(obj, dict) and len(obj) > 0:
            return [type(obj)(i) for i in zip(*map(scatter_item, obj.items()))]
        return [obj for _ in devices]

    def scatter_item(item):
        return [(item[0], part) for part in scatter_map(item[1])]

    return scatter_map(value)


# %% gather
def gather(outputs, device):
    kind = type(outputs[0])
    if issubclass(kind, torch.Tensor):
        rows = [output.unsqueeze(0) if output.dim() == 0 else output for output in outputs]
        return torch.cat([row.to(device) for row in rows], dim=0)
    if issubclass(kind, dict):
        joined = {}
        for key in outputs[0]:
            joined[key] = gather([output[key] for output in outputs], device)
        return joined
    if issubclass(kind, (tuple, list)):
        items = []
        for place in range(len(outputs[0])):
            items.append(gather([output[place] for output in outputs], device))
        return kind(items)
    return outputs[0]


# %% replicate
class BroadcastTensors(torch.autograd.Function):
    @staticmethod
    def forward(ctx, devices, *tensors):
        ctx.home = devices[0]
        ctx.count = len(tensors)
        return tuple(tensor.to(device, copy=True) for device in devices for tensor in tensors)

    @staticmethod
    def backward(ctx, *gradients):
        sums = []
        for place in range(ctx.count):
            there = [g.to(ctx.home) for g in gradients[place :: ctx.count] if g is not None]
            sums.append(sum(there[1:], there[0]) if there else None)
        return (None, *sums)


def shallow(module):
    replica = module.__new__(type(module))
    replica.__dict__ = module.__dict__.copy()
    for name in ("_parameters", "_buffers", "_modules"):
        replica.__dict__[name] = dict(module.__dict__[name])
    return replica


def replicate(module, devices):
    trained = [p for p in module.parameters() if p.requires_grad]
    copies = BroadcastTensors.apply(devices, *trained) if trained else ()
    replicas = []
    for number, device in enumerate(devices):
        mine = copies[number * len(trained) : (number + 1) * len(trained)]
        stands_for = {id(p): c for p, c in zip(trained, mine)}
        for p in module.parameters():
            if not p.requires_grad:
                stands_for[id(p)] = p.detach().to(device, copy=True)
        for b in module.buffers():
            stands_for[id(b)] = b if number == 0 else b.to(device, copy=True)
        parts = {id(part): shallow(part) for part in module.modules()}
        for part in parts.values():
            for name, child in part._modules.items():
                if child is not None:
                    part._modules[name] = parts[id(child)]
            for name, parameter in list(part._parameters.items()):
                if parameter is not None:
                    part._parameters[name] = None
                    part.__dict__[name] = stands_for[id(parameter)]
            for name, buffer in part._buffers.items():
                if buffer is not None:
                    part._buffers[name] = stands_for[id(buffer)]
        replicas.append(parts[id(module)])
    return replicas


# %% parallel_apply
def parallel_apply(replicas, inputs):
    lock = threading.Lock()
    results = {}
    grad_enabled = torch.is_grad_enabled()

    def worker(i, replica, arguments, keywords):
        torch.set_grad_enabled(grad_enabled)
        try:
            output = replica(*arguments, **keywords)
        except Exception as error:
            error.args = (f"Caught in replica {i}: {error}", *error.args[1:])
            output = error
        with lock:
            results[i] = output

    threads = []
    for i in range(1, len(replicas)):
        threads.append(threading.Thread(target=worker, args=(i, replicas[i], *inputs[i])))
    for thread in threads:
        thread.start()
    worker(0, replicas[0], *inputs[0])
    torch.set_grad_enabled(grad_enabled)
    for thread in threads:
        thread.join()
    for i in range(len(replicas)):
        if isinstance(results[i], Exception):
            raise results[i]
    return [results[i] for i in range(len(replicas))]


# %% mini_data_parallel
class MiniDataParallel(nn.Module):
    def __init__(self, module, devices):
        super().__init__()
        self.module = module
        self.device_list = list(devices)

    def forward(self, *inputs, **kwargs):
        if len(self.device_list) == 1:
            return gather([self.module(*inputs, **kwargs)], self.device_list[0])
        args_of = scatter(inputs, self.device_list)
        kwargs_of = scatter(kwargs, self.device_list)
        given = list(zip(args_of, kwargs_of))
        replicas = replicate(self.module, self.device_list[: len(given)])
        return gather(parallel_apply(replicas, given), self.device_list[0])


# %% whole_batch_loss
def whole_batch_loss(losses, counts):
    weights = torch.tensor(counts, dtype=losses.dtype, device=losses.device)
    there = weights > 0
    return (losses[there] * (weights[there] / weights.sum())).sum()


# %% step_plan
def step_plan(sizes, input_bytes, output_bytes, model_bytes, gradient_bytes):
    plan = []
    for d in range(1, len(sizes)):
        plan.append(Move(what="inputs", src=0, dst=d, num_bytes=sizes[d] * input_bytes))
    for d in range(1, len(sizes)):
        plan.append(Move(what="model", src=0, dst=d, num_bytes=model_bytes))
    for d in range(1, len(sizes)):
        plan.append(Move(what="outputs", src=d, dst=0, num_bytes=sizes[d] * output_bytes))
    for d in range(1, len(sizes)):
        plan.append(Move(what="output gradients", src=0, dst=d, num_bytes=sizes[d] * output_bytes))
    for d in range(1, len(sizes)):
        plan.append(Move(what="model gradients", src=d, dst=0, num_bytes=gradient_bytes))
    return plan


# %% plan_cost
def port_bytes(plan, num_devices):
    return [sum(m.num_bytes for m in plan if device in (m.src, m.dst)) for device in range(num_devices)]


def plan_seconds(plan, latency_s, bandwidth_Bps):
    return len(plan) * latency_s + sum(m.num_bytes for m in plan) / bandwidth_Bps


# %% shares_by_speed
def shares_by_speed(num_samples, speeds):
    total = sum(speeds)
    shares = [num_samples * speed // total for speed in speeds]
    while sum(shares) < num_samples:
        lacks = [num_samples * speed - share * total for speed, share in zip(speeds, shares)]
        shares[lacks.index(max(lacks))] += 1
    return shares


def slowest_seconds(shares, speeds):
    seconds = 0.0
    for share, speed in zip(shares, speeds):
        seconds = max(seconds, share / speed)
    return seconds


# %% split_loader
class SplitLoader:
    def __init__(self, dataset, batch_size, speeds, shuffle=True, seed=0):
        self.dataset = dataset
        self.batch_size = batch_size
        self.speeds = speeds
        self.shuffle = shuffle
        self.generator = torch.Generator().manual_seed(seed)

    def __len__(self):
        return (len(self.dataset) + self.batch_size - 1) // self.batch_size

    def __iter__(self):
        count = len(self.dataset)
        order = torch.randperm(count, generator=self.generator) if self.shuffle else torch.arange(count)
        return iter([self.cut(batch) for batch in order.split(self.batch_size)])

    def cut(self, batch):
        pieces = batch.split(shares_by_speed(len(batch), self.speeds))
        return {device: self.load(piece) for device, piece in enumerate(pieces) if len(piece)}

    def load(self, piece):
        samples = [self.dataset[int(index)] for index in piece]
        return torch.stack([x for x, _ in samples]), torch.stack([y for _, y in samples])
