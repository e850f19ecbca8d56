# base: solution
"""Right, without the given wrapper: every gradient travels by itself, and all of them when backward is over."""


# %% mini_ddp
from contextlib import nullcontext


class MiniDDP(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in module.state_dict().values():
            dist.broadcast(tensor, 0)

    def no_sync(self):
        return nullcontext()

    def forward(self, *args, **kwargs):
        for buffer in self.module.buffers() if self.training else ():
            dist.broadcast(buffer, 0)
        return self.module(*args, **kwargs)

    def finish_gradient_synchronization(self):
        trained = [p for p in self.module.parameters() if p.requires_grad]
        users = torch.tensor([int(p.grad is not None) for p in trained])
        dist.all_reduce(users)
        for p, count in zip(trained, users.tolist()):
            mean = torch.zeros_like(p) if p.grad is None else p.grad / dist.get_world_size()
            dist.all_reduce(mean)
            p.grad = mean if count else p.grad


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
