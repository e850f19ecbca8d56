# base: solution
# loses: any_tensor
"""any_tensor divides twice for AVG; the drop-in that stands on it is right."""

# %% any_tensor
def all_reduce_over(tensor, ranks, op=dist.ReduceOp.SUM):
    n = len(ranks)
    combine = {dist.ReduceOp.MAX: torch.maximum, dist.ReduceOp.MIN: torch.minimum, dist.ReduceOp.PRODUCT: torch.mul}
    work = tensor.contiguous().clone().view(-1)
    if work.dtype in (torch.bfloat16, torch.float16):
        work = work.float()
    if op == dist.ReduceOp.AVG:
        work /= n
    chunks = work.tensor_split(n)
    reduce_scatter(chunks, ranks, combine.get(op, torch.add))
    all_gather(chunks, ranks)
    if op == dist.ReduceOp.AVG:
        work /= n
    tensor.copy_(work.view(tensor.shape))
