# base: solution
"""Right in few lines: a module whose hooks are lambdas, a checkpoint that leaves copying to the inner optimizer."""


# %% sharded_module
class Announced(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, call):
        ctx.call = call
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        ctx.call()
        return gradient, None


class ShardedModule(nn.Module):
    def __init__(self, module, blocks=None, compute_dtype=None):
        super().__init__()
        self.module, blocks = module, list(blocks if blocks is not None else module.children())
        count = {p: sum(p in set(b.parameters()) for b in blocks) for p in module.parameters()}
        self.units = [Unit([p for p in b.parameters() if count[p] == 1], compute_dtype) for b in blocks]
        self.root = Unit([p for p in count if count[p] != 1], compute_dtype)
        self.before = None
        last = len(blocks) - 1
        for i, b in enumerate(blocks):
            b.register_forward_pre_hook(lambda *_, i=i: self.need(i, i + 1))
            b.register_forward_hook(lambda *_, i=i: self.units[i].free() if i < last else None)
            b.register_forward_hook(lambda m, args, out, i=i: Announced.apply(out, partial(self.back, i)))
        for u in (self.root, *self.units):
            for p in u.trained:
                p.register_post_accumulate_grad_hook(lambda p, u=u: self.grown(u))

    def back(self, i):
        if i + 1 < len(self.units):
            self.units[i + 1].free()
        self.need(i, i - 1)

    def need(self, i, then):
        self.units[i].gather()
        if 0 <= then < len(self.units):
            self.units[then].start_gather()

    def grown(self, u):
        if all(p.grad is not None for p in u.trained):
            if self.before is not None:
                self.before.finish_scatter()
            u.start_scatter()
            self.before = u

    def forward(self, *args, **kwargs):
        self.root.gather()
        self.units[0].start_gather()
        return self.module(*args, **kwargs)

    def finish_gradient_synchronization(self):
        for u in (self.root, *self.units):
            u.free(), u.finish_scatter()

    def gather_full_params(self):
        names = {p: name for name, p in self.module.named_parameters()}
        full = {}
        for u in (self.root, *self.units):
            for p, w in zip(u.params, u.whole):
                start_gather([p.detach()], [full.setdefault(names[p], torch.empty(w.shape, dtype=p.dtype))])()
        return full


# %% saved_state
class SavedOptimizer(ShardedOptimizer):
    def __init__(self, params, optimizer_cls, **kwargs):
        params = list(params)
        groups = params if isinstance(params[0], dict) else [dict(params=params)]
        self.members = [list(g["params"]) for g in groups]
        super().__init__([{**g, "params": m} for g, m in zip(groups, self.members)], optimizer_cls, **kwargs)

    def all(self):
        return [p for members in self.members for p in members]

    def state_dict(self):
        state = {}
        for number, p in enumerate(self.all()):
            for name, value in self.optimizer.state.get(self.shards.get(p), {}).items():
                whole = torch.zeros_like(p.data)
                if name != "step":
                    start_gather([value], [whole])()
                state.setdefault(number, {})[name] = value if name == "step" else whole
        count = iter(range(len(self.all())))
        groups = [{**g, "params": [next(count) for _ in m]} for g, m in zip(self.optimizer.param_groups, self.members)]
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, saved):
        local = self.optimizer.state_dict()
        where = {p: n for n, p in enumerate(s for g in self.optimizer.param_groups for s in g["params"])}
        every = self.all()
        local["state"] = {
            where[self.shards[every[n]]]: {k: v if k == "step" else shard_of(v) for k, v in kept.items()}
            for n, kept in saved["state"].items()
        }
        for g, new in zip(local["param_groups"], saved["param_groups"]):
            g.update({k: v for k, v in new.items() if k != "params"})
        self.optimizer.load_state_dict(local)
        self.param_groups = self.optimizer.param_groups
