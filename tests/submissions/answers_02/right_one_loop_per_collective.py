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
