# base: solution
"""Right, with buffers made once: each gradient is copied into its bucket as it comes, and the lengths are told first."""


# %% overlapped_ddp
class OverlappedDDP(nn.Module):
    def __init__(self, module):
        super().__init__()
        broadcast_module(module)
        self.module = module
        self.on_its_way = {}
        for name, parameter in module.named_parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(partial(self.send, name))

    def send(self, name, parameter):
        share = parameter.grad / dist.get_world_size()
        self.on_its_way[name] = parameter, share, dist.all_reduce(share, async_op=True)

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def finish_gradient_synchronization(self):
        for parameter, share, work in self.on_its_way.values():
            work.wait()
            parameter.grad = share
        self.on_its_way = {}


# %% bucketed_ddp
class Bucket:
    def __init__(self, parameters):
        self.parameters = parameters
        self.flat = torch.zeros_like(torch.cat([p.detach().reshape(-1) for p in parameters]))
        self.places = dict(zip(parameters, self.flat.split([p.numel() for p in parameters])))
        self.start_over()

    def start_over(self):
        self.came, self.work = set(), None
        self.flat.zero_()

    def take(self, parameter):
        self.places[parameter].copy_(parameter.grad.reshape(-1))
        self.came.add(parameter)

    def send(self):
        self.flat /= dist.get_world_size()
        self.work = dist.all_reduce(self.flat, async_op=True)

    def give(self, parameter):
        if parameter.grad is None:
            parameter.grad = torch.empty_like(parameter)
        parameter.grad.copy_(self.places[parameter].view_as(parameter))


class BucketedDDP(nn.Module):
    def __init__(self, module, bucket_cap_mb=25.0):
        super().__init__()
        broadcast_module(module)
        self.module, self.quiet = module, False
        trained = [p for p in module.parameters() if p.requires_grad]
        plan = bucket_plan([p.nbytes for p in trained], int(bucket_cap_mb * 2**20))
        self.buckets = [Bucket([trained[i] for i in indices]) for indices in plan]
        for bucket in self.buckets:
            for parameter in bucket.parameters:
                parameter.register_post_accumulate_grad_hook(partial(self.arrived, bucket))

    def arrived(self, bucket, parameter):
        if not self.quiet:
            bucket.take(parameter)
            for each in self.buckets:
                if each.work is None:
                    if len(each.came) < len(each.parameters):
                        return
                    each.send()

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def finish_gradient_synchronization(self):
        for bucket in self.buckets:
            bucket.work.wait()
            for parameter in bucket.parameters:
                bucket.give(parameter)
            bucket.start_over()


# %% accumulating_ddp
class Quiet:
    def __init__(self, ddp):
        self.ddp = ddp

    def __enter__(self):
        self.ddp.quiet = True

    def __exit__(self, *error):
        self.ddp.quiet = False


class AccumulatingDDP(BucketedDDP):
    def no_sync(self):
        return Quiet(self)


# %% mini_ddp
class MiniDDP(AccumulatingDDP):
    def forward(self, *args, **kwargs):
        works = [dist.broadcast(b, 0, async_op=True) for b in self.module.buffers()] if self.training else []
        for work in works:
            work.wait()
        return super().forward(*args, **kwargs)

    def finish_gradient_synchronization(self):
        everything = [p for bucket in self.buckets for p in bucket.parameters]
        users = torch.tensor([int(p.grad is not None) for p in everything])
        for bucket in self.buckets:
            if bucket.work is None:
                for parameter in bucket.parameters:
                    if parameter.grad is not None:
                        bucket.take(parameter)
                bucket.send()
        dist.all_reduce(users)
        super().finish_gradient_synchronization()
        for parameter, count in zip(everything, users.tolist()):
            if count == 0:
                parameter.grad = None


# %% uneven_inputs
def train_uneven(ddp, batches, loss_of, optimizer):
    lengths = [torch.zeros(1, dtype=torch.long) for _ in range(dist.get_world_size())]
    dist.all_gather(lengths, torch.tensor([len(batches)]))
    lengths = torch.cat(lengths)
    for step in range(int(lengths.max())):
        optimizer.zero_grad()
        if step < len(batches):
            inputs, targets = batches[step]
            weight = len(lengths) / int((lengths > step).sum())
            (weight * loss_of(ddp(inputs), targets)).backward()
        ddp.finish_gradient_synchronization()
        optimizer.step()
    return int(lengths.max())
