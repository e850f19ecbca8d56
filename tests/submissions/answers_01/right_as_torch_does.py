# base: solution
"""Shallow replicas, pieces cut by hand, exceptions wrapped in others of their type: nearer to torch's own code."""


# %% scatter_and_gather
def piece_bounds(count, pieces):
    size, more = divmod(count, pieces)
    start = 0
    for number in range(pieces):
        end = start + size + (1 if number < more else 0)
        yield start, end
        start = end


def scatter(batch, devices):
    sizes = {tensor.shape[0] for tensor in batch.values()}
    assert len(sizes) == 1
    count = sizes.pop()
    result = []
    for device, (start, end) in zip(devices, piece_bounds(count, min(count, len(devices)))):
        piece = {}
        for key in batch:
            piece[key] = batch[key][start:end].to(device)
        result.append(piece)
    return result


def gather(outputs, device):
    rows = [output.unsqueeze(0) if output.dim() == 0 else output for output in outputs]
    return torch.cat([row.to(device) for row in rows], dim=0)


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

    def worker(i, replica, batch):
        torch.set_grad_enabled(grad_enabled)
        try:
            output = replica(**batch)
        except Exception as error:
            error.add_note(f"Caught in replica {i}")
            output = error
        with lock:
            results[i] = output

    threads = []
    for i in range(1, len(replicas)):
        threads.append(threading.Thread(target=worker, args=(i, replicas[i], inputs[i])))
    for thread in threads:
        thread.start()
    worker(0, replicas[0], inputs[0])
    torch.set_grad_enabled(grad_enabled)
    for thread in threads:
        thread.join()
    for i in range(len(replicas)):
        if isinstance(results[i], Exception):
            raise results[i]
    return [results[i] for i in range(len(replicas))]


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
