# base: solution
"""Right in a terse style: comprehensions, match statements, one function that the others lean on."""

# %% any_tensor
from functools import partial


def all_reduce_over(tensor, ranks, op=dist.ReduceOp.SUM):
    wide = torch.promote_types(tensor.dtype, torch.float32) if tensor.is_floating_point() else tensor.dtype
    work = tensor.to(wide).contiguous().clone()
    combine = {dist.ReduceOp.MAX: torch.maximum, dist.ReduceOp.MIN: torch.minimum, dist.ReduceOp.PRODUCT: torch.mul}
    for half in (partial(reduce_scatter, combine=combine.get(op, torch.add)), all_gather):
        half(work.view(-1).tensor_split(len(ranks)), ranks)
    tensor.copy_(work / len(ranks) if op == dist.ReduceOp.AVG else work)

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
ring_seconds = lambda B, N, a, bw: (2 * N - 2) * (a + B / N / bw)
tree_seconds = lambda B, N, a, bw: 2 * (N - 1).bit_length() * (a + B / bw)
bus_bandwidth = lambda B, seconds, N: 2 * (N - 1) / N * B / seconds

# %% tree_all_reduce
def tree_all_reduce(tensor, group=None):
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    rounds = [(1 << k, [(r + (1 << k), r) for r in range(0, n, 2 << k) if r + (1 << k) < n]) for k in range(n.bit_length())]
    for _, pairs in rounds:
        for child, parent in pairs:
            if rank == child:
                dist.send(tensor, group=group, group_dst=parent)
            elif rank == parent:
                dist.recv(landed := torch.empty_like(tensor), group=group, group_src=child)
                tensor += landed
    for _, pairs in reversed(rounds):
        for child, parent in pairs:
            if rank == parent:
                dist.send(tensor, group=group, group_dst=child)
            elif rank == child:
                dist.recv(tensor, group=group, group_src=parent)

# %% halving_doubling
def halving_doubling_all_reduce(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    if n.bit_count() != 1:
        raise ValueError(f"world size {n}")
    pieces = list(tensor.view(-1).tensor_split(n))

    def swap(partner, out, into):
        ops = [dist.P2POp(dist.isend, out, partner)] * bool(out.numel()) + [dist.P2POp(dist.irecv, into, partner)] * bool(into.numel())
        [work.wait() for work in (dist.batch_isend_irecv(ops) if ops else [])]

    low, high, way = 0, n, []
    while high - low > 1:
        middle = (low + high) // 2
        keep, give = ((low, middle), (middle, high)) if rank < middle else ((middle, high), (low, middle))
        out, mine = (torch.cat(pieces[slice(*part)]) for part in (give, keep))
        swap(rank ^ (high - low) // 2, out, landed := torch.empty_like(mine))
        for piece, data in zip(pieces[slice(*keep)], landed.split([len(p) for p in pieces[slice(*keep)]])):
            piece += data
        way.append((rank ^ (high - low) // 2, keep, give))
        low, high = keep
    for partner, keep, give in reversed(way):
        swap(partner, torch.cat(pieces[slice(*keep)]), landed := torch.cat(pieces[slice(*give)]))
        for piece, data in zip(pieces[slice(*give)], landed.split([len(p) for p in pieces[slice(*give)]])):
            piece.copy_(data)
