# base: student
"""The drop-in is done in one piece, without any_tensor, and one more; then time ran out."""

# %% drop_in_all_reduce
from functools import partial


def ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None, async_op=False):
    if dist.get_rank(group) < 0:
        return None
    n = dist.get_world_size(group)
    wide = {torch.bfloat16: torch.float32, torch.float16: torch.float32}.get(tensor.dtype, tensor.dtype)
    work = tensor.to(wide).contiguous().clone()
    combine = {dist.ReduceOp.MAX: torch.maximum, dist.ReduceOp.MIN: torch.minimum, dist.ReduceOp.PRODUCT: torch.mul}
    for half in (partial(reduce_scatter, combine=combine.get(op, torch.add)), all_gather):
        half(work.view(-1).tensor_split(n), dist.get_process_group_ranks(group))
    tensor.copy_(work / n if op == dist.ReduceOp.AVG else work)
    return type("Work", (), {"wait": lambda self: True})() if async_op else None

# %% ring_cost
def ring_seconds(num_bytes, world_size, latency_s, bandwidth_Bps):
    steps = 2 * (world_size - 1)
    return steps * latency_s + steps * num_bytes / world_size / bandwidth_Bps


def tree_seconds(num_bytes, world_size, latency_s, bandwidth_Bps):
    rounds, reached = 0, 1
    while reached < world_size:
        rounds, reached = rounds + 1, 2 * reached
    return 2 * rounds * (latency_s + num_bytes / bandwidth_Bps)


def bus_bandwidth(num_bytes, seconds, world_size):
    return num_bytes / seconds * 2 * (world_size - 1) / world_size
