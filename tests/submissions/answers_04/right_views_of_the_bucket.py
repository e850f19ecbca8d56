# base: solution
"""Right, as torch does it: gradients are views of the bucket's own flat tensor, so nothing is copied back."""


# %% bucketed_ddp
class BucketedDDP(nn.Module):
    def __init__(self, module, bucket_cap_mb=25.0):
        super().__init__()
        self.module = module
        broadcast_module(module)
        self.trained = [p for p in module.parameters() if p.requires_grad]
        sizes = [p.numel() * p.element_size() for p in self.trained]
        self.plan = [[self.trained[i] for i in bucket] for bucket in bucket_plan(sizes, bucket_cap_mb * 2**20)]
        self.ready, self.works, self.sync = set(), [], True
        for p in self.trained:
            p.register_post_accumulate_grad_hook(self.hook)

    def hook(self, p):
        if not self.sync:
            return
        self.ready.add(p)
        while len(self.works) < len(self.plan) and self.ready.issuperset(self.plan[len(self.works)]):
            self.send(self.plan[len(self.works)])

    def send(self, bucket):
        flat = torch.cat([p.grad.flatten() for p in bucket]).div_(dist.get_world_size())
        start = 0
        for p in bucket:
            p.grad = flat[start : start + p.numel()].view(p.shape)
            start += p.numel()
        self.works.append(dist.all_reduce(flat, async_op=True))

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def finish_gradient_synchronization(self):
        for work in self.works:
            work.wait()
        self.ready, self.works = set(), []
