# base: solution
"""Right in another style: each collective is a loop of its own, without plans; padding where sizes do not divide."""

# %% naive_all_reduce
def naive_all_reduce(tensor):
    me, everybody = dist.get_rank(), range(dist.get_world_size())
    if me != 0:
        dist.send(tensor, 0)
        dist.recv(tensor, 0)
        return
    arrived = {}
    for other in everybody:
        if other != me:
            arrived[other] = torch.zeros_like(tensor)
            dist.recv(arrived[other], other)
    for other in arrived:
        tensor.add_(arrived[other])
    for other in arrived:
        dist.send(tensor, other)

# %% chunk_bounds
def chunk_bounds(numel, num_chunks):
    ends = []
    left = numel
    position = 0
    for remaining in range(num_chunks, 0, -1):
        size = -(-left // remaining)
        ends.append((position, position + size))
        position += size
        left -= size
    return ends

# %% ring_plan
def ring_plan(rank, world_size):
    plan = []
    if world_size == 1:
        return plan
    nxt = rank + 1 if rank + 1 < world_size else 0
    prv = rank - 1 if rank > 0 else world_size - 1
    # This ring is turned by one: after the reduce-scatter rank r owns chunk r.
    out = prv
    for step in range(2 * world_size - 2):
        into = (out - 1) % world_size
        plan.append(Recv(step=step, chunk=into, peer=prv))
        plan.append(Send(step=step, chunk=out, peer=nxt))
        if step < world_size - 1:
            plan.append(Reduce(step=step, chunk=into))
        out = into
    return plan

# %% run_plan
def run_plan(plan, chunks, group=None, combine=torch.add):
    position = 0
    while position < len(plan):
        step = plan[position].step
        records = []
        while position < len(plan) and plan[position].step == step:
            records.append(plan[position])
            position += 1
        requests = []
        landed = []
        for record in records:
            if chunks[record.chunk].numel() == 0 or isinstance(record, Reduce):
                continue
            peer = record.peer if group is None else dist.get_global_rank(group, record.peer)
            if isinstance(record, Send):
                requests.append(dist.P2POp(dist.isend, chunks[record.chunk].clone(), peer, group))
            else:
                box = torch.empty_like(chunks[record.chunk])
                landed.append((record.chunk, box))
                requests.append(dist.P2POp(dist.irecv, box, peer, group))
        if requests:
            for request in dist.batch_isend_irecv(requests):
                request.wait()
        to_reduce = [record.chunk for record in records if isinstance(record, Reduce)]
        for chunk, box in landed:
            if chunk in to_reduce:
                combine(chunks[chunk], box, out=chunks[chunk])
            else:
                chunks[chunk].copy_(box)

# %% ring_sum
def ring_sum(tensor, group=None):
    size = dist.get_world_size(group)
    me = dist.get_rank(group)
    if size == 1 or tensor.numel() == 0:
        return
    length = -(-tensor.numel() // size)
    padded = torch.zeros(length * size, dtype=tensor.dtype)
    padded[: tensor.numel()] = tensor.flatten()
    rows = padded.view(size, length)
    right, left = (me + 1) % size, (me - 1) % size

    def shift(outgoing):
        incoming = torch.empty_like(outgoing)
        swap = [
            dist.P2POp(dist.irecv, incoming, group=group, group_peer=left),
            dist.P2POp(dist.isend, outgoing, group=group, group_peer=right),
        ]
        for work in dist.batch_isend_irecv(swap):
            work.wait()
        return incoming

    for step in range(size - 1):
        arrived = shift(rows[(me - step) % size].clone())
        rows[(me - step - 1) % size] += arrived
    for step in range(size - 1):
        rows[(me - step) % size] = shift(rows[(me - step + 1) % size].clone())
    tensor.copy_(padded[: tensor.numel()].view_as(tensor))

# %% drop_in_all_reduce
class FinishedWork:
    def wait(self, timeout=None):
        return True

    def is_completed(self):
        return True


def ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None, async_op=False):
    me, size = dist.get_rank(group), dist.get_world_size(group)
    if me == -1:
        return None
    flat = tensor.clone(memory_format=torch.contiguous_format).view(-1)
    if flat.dtype in (torch.float16, torch.bfloat16):
        flat = flat.to(torch.float32)
    bounds = chunk_bounds(flat.numel(), size)
    right, left = (me + 1) % size, (me - 1) % size
    for step in range(2 * (size - 1)):
        gathering = step >= size - 1
        out, into = (me - step + gathering * size) % size, (me - step - 1) % size
        outgoing = flat[slice(*bounds[out])]
        incoming = torch.empty_like(flat[slice(*bounds[into])])
        swap = []
        if outgoing.numel() > 0:
            swap.append(dist.P2POp(dist.isend, outgoing, group=group, group_peer=right))
        if incoming.numel() > 0:
            swap.append(dist.P2POp(dist.irecv, incoming, group=group, group_peer=left))
        if swap:
            [work.wait() for work in dist.batch_isend_irecv(swap)]
        target = flat[slice(*bounds[into])]
        if gathering:
            target.copy_(incoming)
        elif op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
            target += incoming
        elif op == dist.ReduceOp.PRODUCT:
            target *= incoming
        elif op == dist.ReduceOp.MAX:
            torch.maximum(target, incoming, out=target)
        else:
            torch.minimum(target, incoming, out=target)
    if op == dist.ReduceOp.AVG:
        flat /= size
    tensor.copy_(flat.view(tensor.shape))
    return FinishedWork() if async_op else None

# %% tree_all_reduce
def tree_all_reduce(tensor, group=None):
    me, size = dist.get_rank(group), dist.get_world_size(group)
    children = []
    parent = None
    bit = 1
    while bit < size:
        if me & bit:
            parent = me - bit
            break
        if me + bit < size:
            children.append(me + bit)
        bit <<= 1
    buffer = torch.empty_like(tensor)
    for child in children:
        dist.recv(buffer, group=group, group_src=child)
        tensor.add_(buffer)
    if parent is not None:
        dist.send(tensor, group=group, group_dst=parent)
        dist.recv(tensor, group=group, group_src=parent)
    for child in reversed(children):
        dist.send(tensor, group=group, group_dst=child)

# %% all_to_all
def all_to_all(outputs, inputs, group=None):
    me, size = dist.get_rank(group), dist.get_world_size(group)
    outputs[me][:] = inputs[me]
    pending = [dist.irecv(outputs[i], group=group, group_src=i) for i in range(size) if i != me and outputs[i].numel()]
    pending += [dist.isend(inputs[i], group=group, group_dst=i) for i in range(size) if i != me and inputs[i].numel()]
    for request in pending:
        request.wait()

# %% hierarchical_all_reduce
def hierarchical_all_reduce(tensor, ranks_per_node):
    me, size = dist.get_rank(), dist.get_world_size()
    if size % ranks_per_node:
        raise ValueError(f"{size} ranks are not whole nodes of {ranks_per_node}")
    first = me - me % ranks_per_node
    inside = list(range(first, first + ranks_per_node))
    across = list(range(me % ranks_per_node, size, ranks_per_node))
    flat = tensor.view(-1)

    def pieces(part, count):
        return [part[start:end] for start, end in chunk_bounds(part.numel(), count)]

    def ring(ranks, parts, steps):
        place, count = ranks.index(me), len(ranks)
        for step in steps:
            out, into = parts[(place - step - 1) % count], parts[(place - step - 2) % count]
            if step >= count - 1:
                out, into = parts[(place - step + count - 1) % count], parts[(place - step - 2 + count) % count]
            landed = torch.empty_like(into)
            swap = [dist.P2POp(dist.isend, out, ranks[(place + 1) % count])] if out.numel() else []
            swap += [dist.P2POp(dist.irecv, landed, ranks[place - 1])] if into.numel() else []
            for work in dist.batch_isend_irecv(swap) if swap else []:
                work.wait()
            if step < count - 1:
                into += landed
            else:
                into.copy_(landed)

    mine = pieces(flat, ranks_per_node)
    ring(inside, mine, range(ranks_per_node - 1))
    own = pieces(mine[me - first], len(across))
    ring(across, own, range(2 * len(across) - 2))
    ring(inside, mine, range(ranks_per_node - 1, 2 * ranks_per_node - 2))
