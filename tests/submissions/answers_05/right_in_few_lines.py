# base: solution
"""Right, shorter: no_sync keeps the bucket back, who used what travels by itself, gradients stay views of the bucket."""


# %% accumulating_ddp
class Quiet:
    def __init__(self, ddp):
        self.ddp = ddp

    def __enter__(self):
        self.ddp.quiet = True

    def __exit__(self, *error):
        self.ddp.quiet = False


class AccumulatingDDP(OneBucketDDP):
    quiet = False

    def no_sync(self):
        return Quiet(self)

    def on_gradient(self, parameter):
        if not self.quiet:
            super().on_gradient(parameter)


# %% mini_ddp
class MiniDDP(AccumulatingDDP):
    def forward(self, *args, **kwargs):
        works = [dist.broadcast(b, 0, async_op=True) for b in self.module.buffers()] if self.training else []
        for work in works:
            work.wait()
        return super().forward(*args, **kwargs)

    def finish_gradient_synchronization(self):
        used = torch.tensor([p.grad is not None for p in self.trained], dtype=torch.int8)
        for p in self.trained:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        if not self.work:
            self.launch()
        dist.all_reduce(used, op=dist.ReduceOp.MAX)
        super().finish_gradient_synchronization()
        for p in (p for p, somebody in zip(self.trained, used.tolist()) if not somebody):
            p.grad = None


# %% sharded_sampler
class ShardedSampler(Sampler):
    def __init__(self, size, world_size, rank, shuffle=True, seed=0, drop_last=False):
        self.args, self.epoch = (size, world_size, rank, shuffle, seed, drop_last), 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        size, world_size, *_, drop_last = self.args
        return (size if drop_last else size + world_size - 1) // world_size

    def __iter__(self):
        size, world_size, rank, shuffle, seed, _ = self.args
        generator = torch.Generator()
        generator.manual_seed(seed + self.epoch)
        order = torch.randperm(size, generator=generator).tolist() if shuffle else range(size)
        for k in range(len(self)):
            yield order[(rank + k * world_size) % size]
