# base: solution
"""Right in another style: each collective is a loop of its own, without plans; padding where sizes do not divide."""

# %% any_tensor
def round_ends(numel, count, chunk):
    return numel // count * chunk + min(chunk, numel % count)


def all_reduce_over(tensor, ranks, op=dist.ReduceOp.SUM):
    me, size = sorted(ranks).index(dist.get_rank()), len(ranks)
    flat = tensor.clone(memory_format=torch.contiguous_format).view(-1)
    if flat.dtype in (torch.float16, torch.bfloat16):
        flat = flat.to(torch.float32)
    ends = [round_ends(flat.numel(), size, i) for i in range(size + 1)]
    bounds = list(zip(ends, ends[1:]))
    right, left = sorted(ranks)[(me + 1) % size], sorted(ranks)[(me - 1) % size]
    for step in range(2 * (size - 1)):
        gathering = step >= size - 1
        out, into = (me - step + gathering * size) % size, (me - step - 1) % size
        outgoing = flat[slice(*bounds[out])]
        incoming = torch.empty_like(flat[slice(*bounds[into])])
        swap = []
        if outgoing.numel() > 0:
            swap.append(dist.P2POp(dist.isend, outgoing, right))
        if incoming.numel() > 0:
            swap.append(dist.P2POp(dist.irecv, incoming, left))
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
        flat = torch.true_divide(flat, size)
    tensor.copy_(flat.view(tensor.shape))

# %% drop_in_all_reduce
class FinishedWork:
    def wait(self, timeout=None):
        return True

    def is_completed(self):
        return True


def ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None, async_op=False):
    if dist.get_rank(group) == -1:
        return None
    all_reduce_over(tensor, dist.get_process_group_ranks(group), op)
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
        return part.tensor_split(count)

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

# %% unequal_links
def all_reduce_plans(num_ranks, ranks_per_node, slow_links):
    """Two levels, step by step for all ranks at once: who sends which chunk to whom is kept as a set of arrows."""
    plans = [[] for _ in range(num_ranks)]
    nodes = [list(range(first, first + ranks_per_node)) for first in range(0, num_ranks, ranks_per_node)]
    for ranks in nodes:  # the slow links out of the way: try all rounds
        best = None
        stack = [[ranks[0]]]
        while stack:
            way = stack.pop()
            if len(way) == len(ranks):
                cost = sum(slow_links.get(pair, 1) for pair in zip(way, way[1:] + way[:1]))
                best = min(best, (cost, way)) if best else (cost, way)
            stack += [[*way, rank] for rank in ranks if rank not in way]
        ranks[:] = best[1]
    step, count = 0, len(nodes)

    def arrows(each, adds):
        nonlocal step
        for src, dst, chunk in each:
            plans[src].append(Send(step, chunk, dst))
        for src, dst, chunk in each:
            plans[dst] += [Recv(step, chunk, src)] + ([Reduce(step, chunk)] if adds else [])
        step += 1

    def inside(turn):
        for ranks in nodes:
            for i, rank in enumerate(ranks):
                for part in range(count):
                    yield rank, ranks[(i + 1) % len(ranks)], (i - turn) % len(ranks) * count + part

    def across(turn):
        for n in range(count):
            for i, rank in enumerate(nodes[n]):
                yield rank, nodes[(n + 1) % count][i], (i + 1) % ranks_per_node * count + (n - turn) % count

    for turn in range(ranks_per_node - 1):
        arrows(list(inside(turn)), True)
    for turn in range(count - 1):
        arrows(list(across(turn)), True)
    for turn in range(count - 1):
        arrows(list(across(turn - 1)), False)
    for turn in range(ranks_per_node - 1):
        arrows(list(inside(turn - 1)), False)
    return plans
