# base: solution
"""2.6 gives the mean where the sum was asked for; 2.7 divides twice for AVG."""

# %% ring_sum
def ring_sum(tensor, group=None):
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    flat = tensor.view(-1)
    chunks = [flat[start:end] for start, end in chunk_bounds(flat.numel(), world_size)]
    run_plan(ring_plan(rank, world_size), chunks, group)
    tensor.div_(world_size)

# %% drop_in_all_reduce
def ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None, async_op=False):
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    if rank < 0:
        return None
    combine = {dist.ReduceOp.MAX: torch.maximum, dist.ReduceOp.MIN: torch.minimum, dist.ReduceOp.PRODUCT: torch.mul}
    work = tensor.contiguous().clone().view(-1)
    if work.dtype in (torch.bfloat16, torch.float16):
        work = work.float()
    if op == dist.ReduceOp.AVG:
        work /= n
    run_plan(ring_plan(rank, n), [work[a:b] for a, b in chunk_bounds(work.numel(), n)], group, combine.get(op, torch.add))
    if op == dist.ReduceOp.AVG:
        work /= n
    tensor.copy_(work.view(tensor.shape))

    class Done:
        def wait(self):
            return True

    return Done() if async_op else None
