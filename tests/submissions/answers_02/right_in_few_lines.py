# base: solution
"""Right in a terse style: comprehensions, match statements, one function that the others lean on."""

# %% count_bytes
root_bytes = lambda num_bytes, world_size: num_bytes * (world_size - 1) + (world_size - 1) * num_bytes
ring_bytes = lambda num_bytes, world_size: sum(num_bytes / world_size for _ in range(2 * world_size - 2))

# %% chunk_bounds
def chunk_bounds(numel, num_chunks):
    sizes = [len(range(i, numel, num_chunks)) for i in range(num_chunks)]
    return [(sum(sizes[:i]), sum(sizes[: i + 1])) for i in range(num_chunks)]

# %% ring_plan
def ring_plan(rank, world_size):
    n, half = world_size, world_size - 1
    return [
        record
        for s in range(2 * half)
        for record in (
            Send(s, (rank - s) % n, (rank + 1) % n) if s < half else Send(s, (rank + 1 - s + half) % n, (rank + 1) % n),
            Recv(s, (rank - s - 1) % n if s < half else (rank - s + half) % n, (rank - 1) % n),
            Reduce(s, (rank - s - 1) % n) if s < half else None,
        )
        if record
    ]

# %% run_plan
def run_plan(plan, chunks, group=None, combine=torch.add):
    for step in sorted({record.step for record in plan}):
        now = [record for record in plan if record.step == step and chunks[record.chunk].numel()]
        ops, arrived = [], {}
        for record in now:
            match record:
                case Send(_, chunk, peer):
                    ops.append(dist.P2POp(dist.isend, chunks[chunk], group=group, group_peer=peer))
                case Recv(_, chunk, peer):
                    arrived[chunk] = torch.empty_like(chunks[chunk])
                    ops.append(dist.P2POp(dist.irecv, arrived[chunk], group=group, group_peer=peer))
        [work.wait() for work in (dist.batch_isend_irecv(ops) if ops else [])]
        add = {record.chunk for record in now if isinstance(record, Reduce)}
        for chunk, data in arrived.items():
            chunks[chunk].copy_(combine(chunks[chunk], data) if chunk in add else data)

# %% ring_sum
def ring_sum(tensor, group=None):
    n = dist.get_world_size(group)
    run_plan(ring_plan(dist.get_rank(group), n), list(tensor.view(-1).tensor_split(n)), group)

# %% drop_in_all_reduce
def ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None, async_op=False):
    if (rank := dist.get_rank(group)) < 0:
        return None
    n = dist.get_world_size(group)
    wide = {torch.bfloat16: torch.float32, torch.float16: torch.float32}.get(tensor.dtype, tensor.dtype)
    work = tensor.to(wide).contiguous().clone()
    combine = {dist.ReduceOp.MAX: torch.maximum, dist.ReduceOp.MIN: torch.minimum, dist.ReduceOp.PRODUCT: torch.mul}
    run_plan(ring_plan(rank, n), list(work.view(-1).tensor_split(n)), group, combine.get(op, torch.add))
    tensor.copy_(work / n if op == dist.ReduceOp.AVG else work)
    return type("Work", (), {"wait": lambda self: True})() if async_op else None

# %% ring_cost
ring_seconds = lambda B, N, a, bw: (2 * N - 2) * a + ring_bytes(B, N) / bw
tree_seconds = lambda B, N, a, bw: 2 * (N - 1).bit_length() * (a + B / bw)
bus_bandwidth = lambda B, seconds, N: ring_bytes(B, N) / seconds

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
