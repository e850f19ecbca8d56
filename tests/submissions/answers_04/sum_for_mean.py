# base: solution
# loses: average_gradients, overlapped_ddp, bucketed_ddp
"""Nobody divides."""


# %% average_gradients
def average_gradients(module):
    for parameter in module.parameters():
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)


# %% overlapped_ddp
class OverlappedDDP(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        broadcast_module(module)
        self.handles = []
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self.on_gradient)

    def on_gradient(self, parameter):
        self.handles.append(dist.all_reduce(parameter.grad, async_op=True))

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def finish_gradient_synchronization(self):
        for handle in self.handles:
            handle.wait()
        self.handles.clear()


# %% bucketed_ddp
class BucketedDDP(nn.Module):
    def __init__(self, module, bucket_cap_mb=25.0):
        super().__init__()
        self.module = module
        broadcast_module(module)
        self.trained = [p for p in module.parameters() if p.requires_grad]
        sizes = [p.numel() * p.element_size() for p in self.trained]
        self.buckets = bucket_plan(sizes, int(bucket_cap_mb * 2**20))
        self.bucket_of = {index: number for number, bucket in enumerate(self.buckets) for index in bucket}
        self.start_over()
        for index, parameter in enumerate(self.trained):
            parameter.register_post_accumulate_grad_hook(partial(self.on_gradient, index))

    def start_over(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.in_flight = []

    def on_gradient(self, index, parameter):
        self.missing[self.bucket_of[index]] -= 1
        while len(self.in_flight) < len(self.buckets) and self.missing[len(self.in_flight)] == 0:
            self.launch(len(self.in_flight))

    def launch(self, number):
        flat = self.pack(number)
        self.in_flight.append((flat, dist.all_reduce(flat, async_op=True)))

    def pack(self, number):
        return torch.cat([self.trained[index].grad.reshape(-1) for index in self.buckets[number]])

    def unpack(self, number, flat):
        start = 0
        for index in self.buckets[number]:
            parameter = self.trained[index]
            parameter.grad.copy_(flat[start : start + parameter.numel()].view_as(parameter))
            start += parameter.numel()

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def finish_gradient_synchronization(self):
        for number, (flat, handle) in enumerate(self.in_flight):
            handle.wait()
            self.unpack(number, flat)
        self.start_over()
