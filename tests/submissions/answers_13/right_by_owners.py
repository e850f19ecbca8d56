# base: solution
"""Right in another style: whole parameters have owners, gradients go in lists, blocks are driven by closures."""


# %% flat_shards
def shard_of(tensor):
    n, r = dist.get_world_size(), dist.get_rank()
    size = (tensor.numel() + n - 1) // n
    padded = tensor.new_zeros(n * size)
    padded[: tensor.numel()] = tensor.detach().flatten()
    return padded[r * size : (r + 1) * size].clone()


def start_gather(shards, tensors):
    mine = torch.cat([s.detach().to(tensors[0].dtype) for s in shards])
    parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    work = dist.all_gather(parts, mine, async_op=True)

    def finish():
        work.wait()
        start = 0
        for shard, tensor in zip(shards, tensors, strict=True):
            whole = torch.cat([part[start : start + len(shard)] for part in parts])
            tensor.data.copy_(whole[: tensor.numel()].view_as(tensor))
            start += len(shard)

    return finish


def start_scatter(tensors):
    n = dist.get_world_size()
    sizes = [(t.numel() + n - 1) // n for t in tensors]
    pieces = [[] for _ in range(n)]
    for tensor, size in zip(tensors, sizes, strict=True):
        padded = tensor.new_zeros(n * size)
        padded[: tensor.numel()] = tensor.detach().flatten()
        for piece, part in zip(pieces, padded.split(size), strict=True):
            piece.append(part)
    pieces = torch.stack([torch.cat(piece) for piece in pieces]) / n
    mine = torch.empty_like(pieces[0])
    work = REDUCE_SCATTER(mine, pieces.flatten(), async_op=True)

    def finish():
        work.wait()
        return list(mine.split(sizes))

    return finish


# %% sharded_optimizer
class ShardedOptimizer(torch.optim.Optimizer):
    def __init__(self, params, optimizer_cls, **kwargs):
        self.shards = {}
        self.optimizer = None
        super().__init__(params, kwargs)
        local = []
        for group in self.param_groups:
            for p in group["params"]:
                if p.requires_grad:
                    self.shards[p] = nn.Parameter(shard_of(p))
            shards = [self.shards[p] for p in group["params"] if p.requires_grad]
            local.append({**group, "params": shards})
        self.optimizer = optimizer_cls(local, **kwargs)
        self.param_groups = self.optimizer.param_groups

    def zero_grad(self, set_to_none=True):
        for p in self.shards:
            p.grad = None

    @torch.no_grad()
    def step(self, closure=None):
        for p, shard in self.shards.items():
            shard.grad = shard_of(p.grad) if p.grad is not None else None
        self.finish()

    def finish(self):
        self.optimizer.step()
        for p, shard in self.shards.items():
            start_gather([shard], [p])()


# %% scattered_gradients
class ScatteringOptimizer(ShardedOptimizer):
    def __init__(self, params, optimizer_cls, **kwargs):
        super().__init__(params, optimizer_cls, **kwargs)
        self.coming = {}
        for p in self.shards:
            p.register_post_accumulate_grad_hook(self.send)

    def send(self, p):
        self.coming[p] = start_scatter([p.grad])
        p.grad = None

    @torch.no_grad()
    def step(self, closure=None):
        for p, shard in self.shards.items():
            shard.grad = self.coming[p]()[0] if p in self.coming else None
        self.coming.clear()
        self.finish()


# %% sharded_module
class ShardedModule(nn.Module):
    def __init__(self, module, blocks=None, compute_dtype=None):
        super().__init__()
        self.module = module
        blocks = list(blocks) if blocks is not None else list(module.children())
        uses = {}
        for i, block in enumerate(blocks):
            for p in block.parameters():
                uses.setdefault(p, []).append(i)
        lists = [[] for _ in blocks]
        rest = []
        for p in module.parameters():
            (lists[uses[p][0]] if len(uses.get(p, [])) == 1 else rest).append(p)
        self.all = [Unit(rest, compute_dtype)] + [Unit(each, compute_dtype) for each in lists]
        self.sent = []
        for i, block in enumerate(blocks, 1):
            block.register_forward_pre_hook(self.arrive(i, i + 1))
            block.register_forward_hook(self.leave(i))
            block.register_full_backward_pre_hook(self.arrive(i, i - 1, i + 1))
        for unit in self.all:
            for p in unit.trained:
                p.register_post_accumulate_grad_hook(self.grown(unit))

    def arrive(self, i, then, done=None):
        def hook(*_):
            if done is not None and done < len(self.all):
                self.all[done].free()
            self.all[i].gather()
            if 0 < then < len(self.all):
                self.all[then].start_gather()

        return hook

    def leave(self, i):
        def hook(*_):
            if i < len(self.all) - 1:
                self.all[i].free()

        return hook

    def grown(self, unit):
        def hook(_):
            if any(p.grad is None for p in unit.trained):
                return
            for other in self.sent:
                other.finish_scatter()
            unit.start_scatter()
            self.sent.append(unit)

        return hook

    def forward(self, *args, **kwargs):
        self.all[0].gather()
        if len(self.all) > 1:
            self.all[1].start_gather()
        return self.module(*args, **kwargs)

    def finish_gradient_synchronization(self):
        for unit in self.all:
            unit.free()
            unit.finish_scatter()
        self.sent = []

    def gather_full_params(self):
        found = {}
        names = {p: name for name, p in self.module.named_parameters()}
        for unit in self.all:
            for p, shard, whole in zip(unit.params, unit.shards, unit.whole):
                parts = [torch.empty_like(shard) for _ in range(dist.get_world_size())]
                dist.all_gather(parts, shard)
                found[names[p]] = torch.cat(parts)[: whole.numel()].view(whole.shape)
        return found


# %% memory_plan
def memory_plan(job):
    from dataclasses import replace

    def spend(plan):
        for _ in range(2 * job.num_layers):
            now, found = cost(job, plan), []
            for name in ("keep", "save"):
                for layer in (at for at, flag in enumerate(getattr(plan, name)) if not flag):
                    flags = list(getattr(plan, name))
                    flags[layer] = True
                    other = replace(plan, **{name: tuple(flags)})
                    then = cost(job, other)
                    if then.peak_bytes <= job.memory_bytes:
                        kept = job.layer_bytes(layer), plan.microbatch * job.activation_bytes[layer]
                        found.append(((now.seconds - then.seconds) / kept[name == "save"], name, layer, other))
            gain, _, _, other = max(found, default=(0, "", 0, plan))
            if gain <= 0:
                break
            plan = other
        return plan

    none = (False,) * job.num_layers
    sizes = [m for m in range(1, job.num_samples + 1) if job.num_samples % m == 0]
    smallest = [StepPlan(m, none, none) for m in sizes]
    plans = [spend(plan) for plan in smallest if cost(job, plan).peak_bytes <= job.memory_bytes]
    return min(plans, key=lambda plan: cost(job, plan).seconds)


# %% offload_plan
def offload_plan(job, host):
    n = job.num_layers
    tried = []
    for microbatch in range(1, job.num_samples + 1):
        for moved in range(n + 1):
            for saved in range(n + 1):
                flags = [tuple(i >= n - count for i in range(n)) for count in (0, saved, moved)]
                plan = OffloadPlan(StepPlan(microbatch, flags[0], flags[1]), flags[2])
                if job.num_samples % microbatch == 0 and offloaded_cost(job, host, plan).peak_bytes <= job.memory_bytes:
                    tried.append(plan)
    return min(tried, key=lambda plan: offloaded_cost(job, host, plan).seconds)


# %% clipped_shards
def clip_by_global_norm(gradients, max_norm, group=None):
    squares = sum(float(g.double().norm()) ** 2 for g in gradients)
    mine = torch.tensor([squares], dtype=torch.float64)
    everyones = [torch.zeros_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(everyones, mine, group=group)
    norm = torch.stack(everyones).sum().sqrt()
    if norm > max_norm:
        for g in gradients:
            g.copy_(g.double() * float(max_norm / norm))
    return norm


# %% hybrid_shards
def node_shard_of(tensor, node):
    n = dist.get_world_size(node)
    size = (tensor.numel() + n - 1) // n
    padded = tensor.new_zeros(n * size)
    padded[: tensor.numel()] = tensor.detach().flatten()
    return padded.split(size)[dist.get_rank(node)].clone() if size else padded


def start_node_gather(shards, tensors, node):
    mine = torch.cat([s.detach().to(tensors[0].dtype) for s in shards])
    parts = [torch.empty_like(mine) for _ in range(dist.get_world_size(node))]
    work = dist.all_gather(parts, mine, group=node, async_op=True)

    def finish():
        work.wait()
        start = 0
        for shard, tensor in zip(shards, tensors, strict=True):
            whole = torch.cat([part[start : start + len(shard)] for part in parts])
            tensor.data.copy_(whole[: tensor.numel()].view_as(tensor))
            start += len(shard)

    return finish


def start_hybrid_scatter(tensors, node, across):
    n, sizes, pieces = dist.get_world_size(node), [], []
    for tensor in tensors:
        size = (tensor.numel() + n - 1) // n
        padded = tensor.new_zeros(n * size)
        padded[: tensor.numel()] = tensor.detach().flatten() / dist.get_world_size()
        sizes.append(size)
        pieces.append(padded.view(n, size))
    pieces = torch.cat(pieces, 1)
    mine = torch.empty_like(pieces[0])
    inside = REDUCE_SCATTER(mine, pieces.flatten(), group=node, async_op=True)

    def finish():
        inside.wait()
        work = dist.all_reduce(mine, group=across, async_op=True)
        work.wait()
        return list(mine.split(sizes))

    return finish
