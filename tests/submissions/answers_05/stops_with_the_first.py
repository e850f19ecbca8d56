# base: solution
# loses: uneven_inputs
"""Training ends when the first rank has no batch left."""


# %% uneven_inputs
def train_uneven(ddp, batches, loss_of, optimizer):
    shortest = torch.tensor(len(batches))
    dist.all_reduce(shortest, op=dist.ReduceOp.MIN)
    for inputs, targets in batches[: int(shortest)]:
        optimizer.zero_grad()
        loss_of(ddp(inputs), targets).backward()
        ddp.finish_gradient_synchronization()
        optimizer.step()
    return int(shortest)
