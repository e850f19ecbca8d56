# base: solution
# loses: drop_in_all_reduce
"""drop_in_all_reduce divides twice for AVG."""

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
    members, chunks = dist.get_process_group_ranks(group), work.tensor_split(n)
    reduce_scatter(chunks, members, combine.get(op, torch.add))
    all_gather(chunks, members)
    if op == dist.ReduceOp.AVG:
        work /= n
    tensor.copy_(work.view(tensor.shape))

    class Done:
        def wait(self):
            return True

    return Done() if async_op else None
