# base: solution
"""Right, with buffers made once: each gradient is copied into its bucket as it comes."""


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
