# base: solution
"""Right in few lines: a module whose hooks are lambdas."""


# %% sharded_module
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
            b.register_full_backward_pre_hook(lambda *_, i=i: self.back(i))
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
        [u.gather() for u in (self.root, *self.units)]
        full = {name: p.detach().clone() for name, p in self.module.named_parameters()}
        [u.free() for u in (self.root, *self.units)]
        return full
