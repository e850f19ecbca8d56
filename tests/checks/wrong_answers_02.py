"""Wrong answers to lesson 02, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from tests.checks.wrong_answer import WrongAnswer

WRONG: list[WrongAnswer] = []


def wrong(exercise: str, name: str, mistake: str, source: str) -> None:
    WRONG.append(WrongAnswer(exercise, name, mistake, source))


# ---- naive_all_reduce

wrong(
    "naive_all_reduce",
    "calls dist.all_reduce",
    "calls the library",
    """
def naive_all_reduce(tensor):
    dist.all_reduce(tensor)
""",
)
wrong(
    "naive_all_reduce",
    "everybody sends to everybody",
    "everything to everyone",
    """
def naive_all_reduce(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    mine = tensor.clone()
    ops, buffers = [], []
    for peer in range(n):
        if peer != rank:
            buffers.append(torch.empty_like(tensor))
            ops += [dist.P2POp(dist.isend, mine, peer), dist.P2POp(dist.irecv, buffers[-1], peer)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    for buffer in buffers:
        tensor += buffer
""",
)
wrong(
    "naive_all_reduce",
    "the total is not sent back",
    "only rank 0 has the sum",
    """
def naive_all_reduce(tensor):
    if dist.get_rank() == 0:
        incoming = torch.empty_like(tensor)
        for peer in range(1, dist.get_world_size()):
            dist.recv(incoming, src=peer)
            tensor += incoming
    else:
        dist.send(tensor, dst=0)
""",
)
wrong(
    "naive_all_reduce",
    "rank 0 receives into its own tensor",
    "rank 0 overwrites its own part",
    """
def naive_all_reduce(tensor):
    n = dist.get_world_size()
    if dist.get_rank() == 0:
        total = torch.zeros_like(tensor)
        for peer in range(1, n):
            dist.recv(tensor, src=peer)
            total += tensor
        tensor.copy_(total)
        for peer in range(1, n):
            dist.send(tensor, dst=peer)
    else:
        dist.send(tensor, dst=0)
        dist.recv(tensor, src=0)
""",
)
wrong(
    "naive_all_reduce",
    "a new tensor instead of in place",
    "not in place",
    """
def naive_all_reduce(tensor):
    n = dist.get_world_size()
    if dist.get_rank() == 0:
        total = tensor.clone()
        incoming = torch.empty_like(tensor)
        for peer in range(1, n):
            dist.recv(incoming, src=peer)
            total = total + incoming
        for peer in range(1, n):
            dist.send(total, dst=peer)
    else:
        total = torch.empty_like(tensor)
        dist.send(tensor, dst=0)
        dist.recv(total, src=0)
    tensor = total
    return tensor
""",
)
wrong(
    "naive_all_reduce",
    "the mean instead of the sum",
    "mean instead of sum",
    """
def naive_all_reduce(tensor):
    n = dist.get_world_size()
    if dist.get_rank() == 0:
        incoming = torch.empty_like(tensor)
        for peer in range(1, n):
            dist.recv(incoming, src=peer)
            tensor += incoming
        tensor /= n
        for peer in range(1, n):
            dist.send(tensor, dst=peer)
    else:
        dist.send(tensor, dst=0)
        dist.recv(tensor, src=0)
""",
)
wrong(
    "naive_all_reduce",
    "rank 0 sends before it receives",
    "everybody sends first",
    """
def naive_all_reduce(tensor):
    n = dist.get_world_size()
    if dist.get_rank() == 0:
        incoming = torch.empty_like(tensor)
        for peer in range(1, n):
            dist.send(tensor, dst=peer)
            dist.recv(incoming, src=peer)
            tensor += incoming
    else:
        dist.send(tensor, dst=0)
        dist.recv(tensor, src=0)
""",
)
wrong(
    "naive_all_reduce",
    "two ranks are written into the code",
    "only one rank is added",
    """
def naive_all_reduce(tensor):
    if dist.get_rank() == 0:
        incoming = torch.empty_like(tensor)
        dist.recv(incoming, src=1)
        tensor += incoming
        dist.send(tensor, dst=1)
    elif dist.get_rank() == 1:
        dist.send(tensor, dst=0)
        dist.recv(tensor, src=0)
""",
)

# ---- count_bytes

_RING_BYTES = "\ndef ring_bytes(num_bytes, world_size):\n    return 2 * (world_size - 1) / world_size * num_bytes\n"
_ROOT_BYTES = "\ndef root_bytes(num_bytes, world_size):\n    return 2 * (world_size - 1) * num_bytes\n"
for _name, _mistake, _formula in (
    ("received only", "one direction only", "(world_size - 1) * num_bytes"),
    ("rank 0 sends to itself", "rank 0 counted as its own peer", "2 * world_size * num_bytes"),
    ("no return", "returns nothing", None),
):
    _body = f"return {_formula}" if _formula else "print(2 * (world_size - 1) * num_bytes)"
    wrong(
        "count_bytes", f"root: {_name}", _mistake, f"def root_bytes(num_bytes, world_size):\n    {_body}\n{_RING_BYTES}"
    )
for _name, _mistake, _formula in (
    ("reduce-scatter only", "one half of the ring only", "(world_size - 1) / world_size * num_bytes"),
    ("whole tensors", "whole tensor at each step", "2 * (world_size - 1) * num_bytes"),
    ("N steps", "N steps", "2 * num_bytes"),
    ("floor division", "rounded down", "2 * (world_size - 1) * (num_bytes // world_size)"),
):
    _body = f"def ring_bytes(num_bytes, world_size):\n    return {_formula}\n"
    wrong("count_bytes", f"ring: {_name}", _mistake, _body + _ROOT_BYTES)

# ---- chunk_bounds

wrong(
    "chunk_bounds",
    "end included",
    "end included",
    """
def chunk_bounds(numel, num_chunks):
    size, rest = divmod(numel, num_chunks)
    bounds, start = [], 0
    for i in range(num_chunks):
        end = start + size + (i < rest)
        bounds.append((start, end - 1))
        start = end
    return bounds
""",
)
wrong(
    "chunk_bounds",
    "remainder dropped",
    "remainder dropped",
    """
def chunk_bounds(numel, num_chunks):
    size = numel // num_chunks
    return [(i * size, (i + 1) * size) for i in range(num_chunks)]
""",
)
wrong(
    "chunk_bounds",
    "remainder in the last chunk",
    "sizes differ by more than one",
    """
def chunk_bounds(numel, num_chunks):
    size = numel // num_chunks
    bounds = [(i * size, (i + 1) * size) for i in range(num_chunks)]
    bounds[-1] = (bounds[-1][0], numel)
    return bounds
""",
)
wrong(
    "chunk_bounds",
    "as torch.chunk cuts",
    "sizes differ by more than one",
    """
def chunk_bounds(numel, num_chunks):
    bounds, start = [], 0
    for piece in torch.arange(numel).chunk(num_chunks):
        bounds.append((start, start + len(piece)))
        start += len(piece)
    return bounds
""",
)
wrong(
    "chunk_bounds",
    "longer chunks last",
    "longer chunks last",
    """
def chunk_bounds(numel, num_chunks):
    cuts = [i * numel // num_chunks for i in range(num_chunks + 1)]
    return list(zip(cuts, cuts[1:]))
""",
)
wrong(
    "chunk_bounds",
    "rounded up beyond the end",
    "beyond the end",
    """
def chunk_bounds(numel, num_chunks):
    size = -(-numel // num_chunks)
    return [(i * size, (i + 1) * size) for i in range(num_chunks)]
""",
)
wrong(
    "chunk_bounds",
    "start and size",
    "size instead of end",
    """
def chunk_bounds(numel, num_chunks):
    size, rest = divmod(numel, num_chunks)
    bounds, start = [], 0
    for i in range(num_chunks):
        mine = size + (i < rest)
        bounds.append((start, mine))
        start += mine
    return bounds
""",
)

# ---- ring_plan


def _plan(
    scatter: str = "Send(s, (rank - s) % n, right), Recv(s, (rank - s - 1) % n, left), Reduce(s, (rank - s - 1) % n)",
    gather: str = "Send(n - 1 + s, (rank + 1 - s) % n, right), Recv(n - 1 + s, (rank - s) % n, left)",
    steps: tuple[str, str] = ("n - 1", "n - 1"),
    neighbours: tuple[str, str] = ("(rank + 1) % n", "(rank - 1) % n"),
) -> str:
    return f"""
def ring_plan(rank, world_size):
    n = world_size
    right, left = {neighbours[0]}, {neighbours[1]}
    plan = []
    for s in range({steps[0]}):
        plan += [{scatter}]
    for s in range({steps[1]}):
        plan += [{gather}]
    return plan
"""


wrong(
    "ring_plan",
    "sends the chunk just received in the first step",
    "sends the chunk it is receiving",
    _plan(
        scatter="Send(s, (rank - s - 1) % n, right), Recv(s, (rank - s - 1) % n, left), Reduce(s, (rank - s - 1) % n)"
    ),
)
wrong(
    "ring_plan",
    "wrong chunk: + instead of -",
    "sends the chunk it is receiving",
    _plan(scatter="Send(s, (rank + s) % n, right), Recv(s, (rank - s - 1) % n, left), Reduce(s, (rank - s - 1) % n)"),
)
wrong("ring_plan", "the last step of the all-gather is missing", "one step too few", _plan(steps=("n - 1", "n - 2")))
wrong("ring_plan", "no all-gather", "no all-gather", _plan(steps=("n - 1", "0")))
wrong("ring_plan", "N steps in each half", "one step too many", _plan(steps=("n", "n")))
wrong(
    "ring_plan",
    "the all-gather reduces",
    "reduces in the all-gather",
    _plan(
        gather="Send(n - 1 + s, (rank + 1 - s) % n, right), Recv(n - 1 + s, (rank - s) % n, left), "
        "Reduce(n - 1 + s, (rank - s) % n)"
    ),
)
wrong(
    "ring_plan",
    "no Reduce",
    "never reduces",
    _plan(scatter="Send(s, (rank - s) % n, right), Recv(s, (rank - s - 1) % n, left)"),
)
wrong(
    "ring_plan",
    "no modulo",
    "modulo forgotten",
    _plan(scatter="Send(s, rank - s, right), Recv(s, rank - s - 1, left), Reduce(s, rank - s - 1)"),
)
wrong("ring_plan", "neighbour without modulo", "modulo forgotten", _plan(neighbours=("rank + 1", "rank - 1")))
wrong(
    "ring_plan",
    "all-gather starts one chunk early",
    "complete chunks are sent in the wrong order",
    _plan(gather="Send(n - 1 + s, (rank - s) % n, right), Recv(n - 1 + s, (rank - s - 1) % n, left)"),
)
wrong(
    "ring_plan",
    "right and left are the same",
    "right and left mixed up",
    _plan(neighbours=("(rank + 1) % n", "(rank + 1) % n")),
)
wrong(
    "ring_plan",
    "steps of the all-gather from 0",
    "steps of the all-gather start at 0 again",
    _plan(gather="Send(s, (rank + 1 - s) % n, right), Recv(s, (rank - s) % n, left)"),
)

# ---- run_plan


def _run(body: str, kept: str = "if chunks[r.chunk].numel()") -> str:
    return f"""
def run_plan(plan, chunks, group=None, combine=torch.add):
    steps = {{}}
    for record in plan:
        steps.setdefault(record.step, []).append(record)
    for step, records in sorted(steps.items()):
        records = [r for r in records {kept}]
        reduced = {{r.chunk for r in records if isinstance(r, Reduce)}}
        incoming = {{}}
        ops = []
{body}
"""


_POST = """
        for r in records:
            if isinstance(r, Send):
                ops.append(dist.P2POp(dist.isend, chunks[r.chunk], group=group, group_peer=r.peer))
            elif isinstance(r, Recv):
                incoming[r.chunk] = torch.empty_like(chunks[r.chunk])
                ops.append(dist.P2POp(dist.irecv, incoming[r.chunk], group=group, group_peer=r.peer))
        for work in dist.batch_isend_irecv(ops) if ops else []:
            work.wait()
"""
_COMBINED = """
        for chunk, data in incoming.items():
            chunks[chunk].copy_(combine(chunks[chunk], data) if chunk in reduced else data)
"""
wrong(
    "run_plan",
    "always adds",
    "always adds",
    _run(
        _POST
        + """
        for chunk, data in incoming.items():
            chunks[chunk] += data
"""
    ),
)
wrong(
    "run_plan",
    "never adds",
    "never adds",
    _run(
        _POST
        + """
        for chunk, data in incoming.items():
            chunks[chunk].copy_(data)
"""
    ),
)
wrong(
    "run_plan",
    "receives into the chunk and adds it to itself",
    "adds the chunk to itself",
    _run(
        _POST.replace("torch.empty_like(chunks[r.chunk])", "chunks[r.chunk]")
        + """
        for chunk in reduced:
            chunks[chunk] += incoming[chunk]
"""
    ),
)
wrong(
    "run_plan",
    "one blocking call after another",
    "one message at a time",
    _run("""
        for r in records:
            if isinstance(r, Send):
                dist.send(chunks[r.chunk], group=group, group_dst=r.peer)
            elif isinstance(r, Recv):
                incoming[r.chunk] = torch.empty_like(chunks[r.chunk])
                dist.recv(incoming[r.chunk], group=group, group_src=r.peer)
        for chunk, data in incoming.items():
            chunks[chunk].copy_(chunks[chunk] + data if chunk in reduced else data)
"""),
)
wrong(
    "run_plan",
    "puts new tensors into the list",
    "chunks not changed in place",
    _run(
        _POST
        + """
        for chunk, data in incoming.items():
            chunks[chunk] = chunks[chunk] + data if chunk in reduced else data
"""
    ),
)
wrong(
    "run_plan",
    "peers as global ranks",
    "group ranks taken for global ranks",
    _run(_POST.replace("group=group, group_peer=r.peer", "r.peer, group") + _COMBINED),
)
wrong(
    "run_plan",
    "counts steps without gaps",
    "steps counted without gaps",
    """
def run_plan(plan, chunks, group=None, combine=torch.add):
    for step in range(len({r.step for r in plan})):
        records = [r for r in plan if r.step == step]
        reduced = {r.chunk for r in records if isinstance(r, Reduce)}
        incoming, ops = {}, []
"""
    + _POST
    + """
        for chunk, data in incoming.items():
            chunks[chunk].copy_(chunks[chunk] + data if chunk in reduced else data)
""",
)
wrong(
    "run_plan",
    "makes P2POps and never posts them",
    "nothing sent",
    _run("""
        for r in records:
            if isinstance(r, Send):
                ops.append(dist.P2POp(dist.isend, chunks[r.chunk], group=group, group_peer=r.peer))
            elif isinstance(r, Recv):
                incoming[r.chunk] = torch.zeros_like(chunks[r.chunk])
                ops.append(dist.P2POp(dist.irecv, incoming[r.chunk], group=group, group_peer=r.peer))
        for chunk, data in incoming.items():
            chunks[chunk].copy_(chunks[chunk] + data if chunk in reduced else data)
"""),
)

wrong(
    "run_plan",
    "adds whatever combine is",
    "combine ignored",
    _run(
        _POST
        + """
        for chunk, data in incoming.items():
            chunks[chunk].copy_(chunks[chunk] + data if chunk in reduced else data)
"""
    ),
)
wrong(
    "run_plan",
    "out=chunk forgotten",
    "out=chunk forgotten",
    _run(
        _POST
        + """
        for chunk, data in incoming.items():
            combine(chunks[chunk], data) if chunk in reduced else chunks[chunk].copy_(data)
"""
    ),
)
wrong(
    "run_plan",
    "sends messages of empty chunks",
    "empty messages",
    _run(_POST + _COMBINED, kept=""),
)
wrong(
    "run_plan",
    "posts an empty batch",
    "empty batch",
    _run(_POST.replace(" if ops else []", "") + _COMBINED),
)
wrong(
    "run_plan",
    "group forgotten",
    "group ranks taken for global ranks",
    _run(_POST.replace("group=group, group_peer=r.peer", "r.peer") + _COMBINED),
)

# ---- ring_sum


def _ring(before: str = "", after: str = "", plan: str = "ring_plan(rank, n)") -> str:
    return f"""
def ring_sum(tensor, group=None):
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    flat = tensor.view(-1)
{before}
    chunks = [flat[a:b] for a, b in chunk_bounds(flat.numel(), n)]
    run_plan({plan}, chunks, group)
{after}
"""


wrong(
    "ring_sum",
    "calls dist.all_reduce",
    "calls the library",
    """
def ring_sum(tensor, group=None):
    dist.all_reduce(tensor, group=group)
""",
)
wrong(
    "ring_sum",
    "calls reduce_scatter and all_gather",
    "calls the library",
    """
def ring_sum(tensor, group=None):
    n = dist.get_world_size(group)
    parts = [torch.empty_like(tensor) for _ in range(n)]
    dist.all_gather(parts, tensor, group=group)
    tensor.copy_(torch.stack(parts).sum(0))
""",
)
wrong(
    "ring_sum",
    "whole tensor round the ring",
    "whole tensor at each step",
    """
def ring_sum(tensor, group=None):
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    moving = tensor.clone()
    for _ in range(n - 1):
        incoming = torch.empty_like(moving)
        for work in dist.batch_isend_irecv([
            dist.P2POp(dist.isend, moving, group=group, group_peer=(rank + 1) % n),
            dist.P2POp(dist.irecv, incoming, group=group, group_peer=(rank - 1) % n),
        ]) if n > 1 and tensor.numel() else []:
            work.wait()
        tensor += incoming
        moving = incoming
""",
)
wrong(
    "ring_sum",
    "naive, through rank 0",
    "reduce to one rank",
    """
def ring_sum(tensor, group=None):
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    if rank == 0:
        incoming = torch.empty_like(tensor)
        for peer in range(1, n):
            dist.recv(incoming, group=group, group_src=peer)
            tensor += incoming
        for peer in range(1, n):
            dist.send(tensor, group=group, group_dst=peer)
    else:
        dist.send(tensor, group=group, group_dst=0)
        dist.recv(tensor, group=group, group_src=0)
""",
)
wrong("ring_sum", "the mean instead of the sum", "mean instead of sum", _ring(after="    tensor /= n"))
wrong("ring_sum", "no all-gather", "no all-gather", _ring(plan="[r for r in ring_plan(rank, n) if r.step < n - 1]"))
wrong(
    "ring_sum",
    "last all-gather step forgotten",
    "one step too few",
    _ring(plan="[r for r in ring_plan(rank, n) if r.step < 2 * n - 3]"),
)
wrong(
    "ring_sum",
    "all-gather adds",
    "a contribution added twice",
    _ring(
        plan="[x for r in ring_plan(rank, n) for x in ([r, Reduce(r.step, r.chunk)] if isinstance(r, Recv) "
        "and r.step >= n - 1 else [r])]"
    ),
)
wrong("ring_sum", "remainder left out", "remainder dropped", _ring(before="    flat = flat[: flat.numel() // n * n]"))
wrong("ring_sum", "a copy is reduced", "not in place", _ring(before="    flat = flat.clone()"))
wrong(
    "ring_sum",
    "blocking sends on all ranks at once",
    "everybody sends first",
    """
def ring_sum(tensor, group=None):
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    flat = tensor.view(-1)
    chunks = [flat[a:b] for a, b in chunk_bounds(flat.numel(), n)]
    for s in range(n - 1):
        dist.send(chunks[(rank - s) % n], group=group, group_dst=(rank + 1) % n)
        incoming = torch.empty_like(chunks[(rank - s - 1) % n])
        dist.recv(incoming, group=group, group_src=(rank - 1) % n)
        chunks[(rank - s - 1) % n] += incoming
    for s in range(n - 1):
        dist.send(chunks[(rank + 1 - s) % n], group=group, group_dst=(rank + 1) % n)
        dist.recv(chunks[(rank - s) % n], group=group, group_src=(rank - 1) % n)
""",
)
wrong(
    "ring_sum",
    "ranks of the world in a group",
    "group ranks taken for global ranks",
    """
def ring_sum(tensor, group=None):
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    flat = tensor.view(-1)
    chunks = [flat[a:b] for a, b in chunk_bounds(flat.numel(), n)]
    for s in range(2 * n - 2):
        out = (rank - s) % n if s < n - 1 else (rank + 1 - (s - n + 1)) % n
        into = (rank - s - 1) % n if s < n - 1 else (rank - (s - n + 1)) % n
        incoming = torch.empty_like(chunks[into])
        for work in dist.batch_isend_irecv([
            dist.P2POp(dist.isend, chunks[out], (rank + 1) % n, group),
            dist.P2POp(dist.irecv, incoming, (rank - 1) % n, group),
        ]):
            work.wait()
        if s < n - 1:
            chunks[into] += incoming
        else:
            chunks[into].copy_(incoming)
""",
)
wrong(
    "ring_sum",
    "world size 4 is written into the code",
    "a rank that is not there",
    """
def ring_sum(tensor, group=None):
    rank, n = dist.get_rank(group), 4
    flat = tensor.view(-1)
    chunks = [flat[a:b] for a, b in chunk_bounds(flat.numel(), n)]
    run_plan(ring_plan(rank, n), chunks, group)
""",
)
wrong(
    "ring_sum",
    "needs a length that divides",
    "needs sizes that divide",
    """
def ring_sum(tensor, group=None):
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    chunks = list(tensor.view(-1).view(n, -1))
    run_plan(ring_plan(rank, n), chunks, group)
""",
)

wrong(
    "ring_sum",
    "a buffer is filled again while its isend is in flight",
    "buffer reused in flight",
    """
def ring_sum(tensor, group=None):
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    flat = tensor.view(-1)
    chunks = [flat[a:b] for a, b in chunk_bounds(flat.numel(), n)]
    outbox = torch.empty_like(max(chunks, key=len))
    pending = []
    for s in range(2 * n - 2):
        out = chunks[(rank - s) % n] if s < n - 1 else chunks[(rank + 1 - (s - n + 1)) % n]
        into = chunks[(rank - s - 1) % n] if s < n - 1 else chunks[(rank - (s - n + 1)) % n]
        outbox[: len(out)].copy_(out)
        if len(out):
            pending.append(dist.isend(outbox[: len(out)], group=group, group_dst=(rank + 1) % n))
        incoming = torch.empty_like(into)
        if len(into):
            dist.recv(incoming, group=group, group_src=(rank - 1) % n)
        into.copy_(into + incoming if s < n - 1 else incoming)
    for work in pending:
        work.wait()
""",
)

wrong(
    "ring_sum",
    "one rank after the other sends",
    "one after another",
    """
def ring_sum(tensor, group=None):
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    flat = tensor.view(-1)
    chunks = [flat[start:end] for start, end in chunk_bounds(flat.numel(), n)]
    right, left = (rank + 1) % n, (rank - 1) % n
    for step in range(2 * (n - 1)):
        shift = step if step < n - 1 else step - n
        sent, got = chunks[(rank - shift) % n], chunks[(rank - shift - 1) % n]
        incoming = torch.empty_like(got)
        if rank == 0 and sent.numel():
            dist.send(sent, group_dst=right, group=group)
        if got.numel():
            dist.recv(incoming, group_src=left, group=group)
        if rank > 0 and sent.numel():
            dist.send(sent, group_dst=right, group=group)
        if step < n - 1:
            got += incoming
        else:
            got.copy_(incoming)
""",
)

# ---- drop_in_all_reduce


def _drop_in(
    combine: str = "{dist.ReduceOp.SUM: torch.add, dist.ReduceOp.AVG: torch.add, dist.ReduceOp.MAX: torch.maximum, "
    "dist.ReduceOp.MIN: torch.minimum, dist.ReduceOp.PRODUCT: torch.mul}[op]",
    flat: str = "tensor.contiguous().view(-1)",
    work: str = "flat.float() if flat.dtype in (torch.bfloat16, torch.float16) else flat",
    average: str = "work /= n",
    back: str = "tensor.copy_(work.view(tensor.shape))",
    outside: str = "return None",
    end: str = "return Done() if async_op else None",
    call: str = "run_plan(ring_plan(rank, n), [work[a:b] for a, b in chunk_bounds(work.numel(), n)], group, combine)",
) -> str:
    return f"""
class Done:
    def wait(self):
        return True


def ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None, async_op=False):
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    if rank < 0:
        {outside}
    combine = {combine}
    flat = {flat}
    work = {work}
    {call}
    if op == dist.ReduceOp.AVG:
        {average}
    {back}
    {end}
"""


wrong(
    "drop_in_all_reduce",
    "calls dist.all_reduce",
    "calls the library",
    """
def ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None, async_op=False):
    return dist.all_reduce(tensor, op=op, group=group, async_op=async_op)
""",
)
wrong("drop_in_all_reduce", "op is ignored", "op ignored", _drop_in(combine="torch.add"))
wrong("drop_in_all_reduce", "divides twice", "divided wrongly", _drop_in(average="work /= n * n"))
wrong("drop_in_all_reduce", "divides by a constant 2", "divided wrongly", _drop_in(average="work /= 2"))
wrong(
    "drop_in_all_reduce",
    "averages always",
    "mean instead of sum",
    _drop_in(back="work = work / n if op == dist.ReduceOp.SUM else work; tensor.copy_(work.view(tensor.shape))"),
)
wrong("drop_in_all_reduce", "adds up in bfloat16", "adds up in 16 bits", _drop_in(work="flat"))
wrong(
    "drop_in_all_reduce",
    "adds up in float16",
    "adds up in 16 bits",
    _drop_in(work="flat.float() if flat.dtype == torch.bfloat16 else flat"),
)
wrong("drop_in_all_reduce", "the average is not divided", "not divided", _drop_in(average="pass"))
wrong(
    "drop_in_all_reduce",
    "a rank outside the group gets a work object",
    "a rank outside the group takes part",
    _drop_in(outside="return Done() if async_op else None"),
)
wrong("drop_in_all_reduce", "everything through float32", "a detour through float32", _drop_in(work="flat.float()"))
wrong(
    "drop_in_all_reduce",
    "a copy of a non-contiguous tensor is reduced",
    "works on a copy of a non-contiguous tensor",
    _drop_in(back="tensor.copy_(work.view(tensor.shape)) if tensor.is_contiguous() else None"),
)
wrong(
    "drop_in_all_reduce",
    "view refuses a non-contiguous tensor",
    "works on a copy of a non-contiguous tensor",
    _drop_in(flat="tensor.view(-1)"),
)
wrong("drop_in_all_reduce", "async_op is ignored", "no work object", _drop_in(end="return None"))
wrong("drop_in_all_reduce", "always returns a work object", "always a work object", _drop_in(end="return Done()"))
wrong(
    "drop_in_all_reduce",
    "a rank outside the group goes on",
    "a rank outside the group takes part",
    _drop_in(outside="pass"),
)
wrong(
    "drop_in_all_reduce",
    "whole tensor round the ring",
    "whole tensor at each step",
    _drop_in(
        call="""moving = work.clone()
    for _ in range(n - 1):
        incoming = torch.empty_like(moving)
        for w in dist.batch_isend_irecv([
            dist.P2POp(dist.isend, moving, group=group, group_peer=(rank + 1) % n),
            dist.P2POp(dist.irecv, incoming, group=group, group_peer=(rank - 1) % n),
        ]):
            w.wait()
        work = combine(work, incoming)
        moving = incoming"""
    ),
)
wrong(
    "drop_in_all_reduce",
    "group not passed on",
    "group ranks taken for global ranks",
    _drop_in(call="run_plan(ring_plan(rank, n), [work[a:b] for a, b in chunk_bounds(work.numel(), n)], None, combine)"),
)

# ---- ring_cost


def _seconds(
    ring: str = "2 * (n - 1) * (a + b / n / w)",
    tree: str = "2 * math.ceil(math.log2(n)) * (a + b / w)",
    busbw: str = "2 * (n - 1) / n * b / s",
) -> str:
    return f"""
def ring_seconds(num_bytes, world_size, latency_s, bandwidth_Bps):
    b, n, a, w = num_bytes, world_size, latency_s, bandwidth_Bps
    return {ring}


def tree_seconds(num_bytes, world_size, latency_s, bandwidth_Bps):
    b, n, a, w = num_bytes, world_size, latency_s, bandwidth_Bps
    return {tree}


def bus_bandwidth(num_bytes, seconds, world_size):
    b, s, n = num_bytes, seconds, world_size
    return {busbw}
"""


wrong("ring_cost", "latency counted once", "latency counted once", _seconds(ring="a + 2 * (n - 1) * b / n / w"))
wrong("ring_cost", "whole tensor at each step", "whole tensor at each step", _seconds(ring="2 * (n - 1) * (a + b / w)"))
wrong("ring_cost", "half a ring", "one half of the ring only", _seconds(ring="(n - 1) * (a + b / n / w)"))
wrong("ring_cost", "log2 as it is", "no rounding up", _seconds(tree="2 * math.log2(n) * (a + b / w)"))
wrong("ring_cost", "only up the tree", "way up only", _seconds(tree="math.ceil(math.log2(n)) * (a + b / w)"))
wrong("ring_cost", "algbw", "algbw instead of busbw", _seconds(busbw="b / s"))
wrong("ring_cost", "busbw of a reduce-scatter", "half of busbw", _seconds(busbw="(n - 1) / n * b / s"))

# ---- tree_all_reduce

wrong(
    "tree_all_reduce",
    "calls the library",
    "calls the library",
    """
def tree_all_reduce(tensor, group=None):
    dist.reduce(tensor, dst=0 if group is None else dist.get_global_rank(group, 0), group=group)
    dist.broadcast(tensor, src=0 if group is None else dist.get_global_rank(group, 0), group=group)
""",
)
wrong(
    "tree_all_reduce",
    "everything through rank 0",
    "everything through rank 0",
    """
def tree_all_reduce(tensor, group=None):
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    if rank == 0:
        incoming = torch.empty_like(tensor)
        for peer in range(1, n):
            dist.recv(incoming, group=group, group_src=peer)
            tensor += incoming
        for peer in range(1, n):
            dist.send(tensor, group=group, group_dst=peer)
    else:
        dist.send(tensor, group=group, group_dst=0)
        dist.recv(tensor, group=group, group_src=0)
""",
)
wrong(
    "tree_all_reduce",
    "a chain",
    "one after another",
    """
def tree_all_reduce(tensor, group=None):
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    incoming = torch.empty_like(tensor)
    if rank < n - 1:
        dist.recv(incoming, group=group, group_src=rank + 1)
        tensor += incoming
    if rank > 0:
        dist.send(tensor, group=group, group_dst=rank - 1)
        dist.recv(tensor, group=group, group_src=rank - 1)
    if rank < n - 1:
        dist.send(tensor, group=group, group_dst=rank + 1)
""",
)


def _tree(condition: str = " and rank + d < n", down: bool = True, more: str = "") -> str:
    text = f"""
def tree_all_reduce(tensor, group=None):
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    distances = [2**k for k in range(10) if 2**k < n]
    incoming = torch.empty_like(tensor)
    for d in distances:
        if rank % (2 * d) == d:
            dist.send(tensor, group_dst=rank - d, group=group)
        elif rank % (2 * d) == 0{condition}:
            dist.recv(incoming, group_src=rank + d, group=group)
            tensor += incoming
"""
    if down:
        text += f"""
    for d in reversed(distances):
        if rank % (2 * d) == d:
            dist.recv(tensor, group_src=rank - d, group=group)
        elif rank % (2 * d) == 0{condition}:
            dist.send(tensor, group_dst=rank + d, group=group)
"""
    return text + more


wrong("tree_all_reduce", "no way down", "only rank 0 has the sum", _tree(down=False))
wrong("tree_all_reduce", "partners that are not there", "only for powers of two", _tree(condition=""))
wrong("tree_all_reduce", "the mean", "mean instead of sum", _tree(more="    tensor /= n\n"))

wrong(
    "tree_all_reduce",
    "three rounds written into the code",
    "too few rounds",
    """
def tree_all_reduce(tensor, group=None):
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    incoming = torch.empty_like(tensor)
    for d in (1, 2, 4):
        if rank % (2 * d) == d:
            dist.send(tensor, group_dst=rank - d, group=group)
        elif rank % (2 * d) == 0 and rank + d < n:
            dist.recv(incoming, group_src=rank + d, group=group)
            tensor += incoming
    for d in (4, 2, 1):
        if rank % (2 * d) == d:
            dist.recv(tensor, group_src=rank - d, group=group)
        elif rank % (2 * d) == 0 and rank + d < n:
            dist.send(tensor, group_dst=rank + d, group=group)
""",
)

# ---- halving_doubling


def _halving(
    check: str = "    if n & (n - 1): raise ValueError(f'{n} ranks are no power of two')",
    back: bool = True,
    middle: str = "mine.numel() // 2",
    after: str = "",
) -> str:
    text = f"""
def halving_doubling_all_reduce(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
{check}

    def swap(partner, out, into):
        ops = [dist.P2POp(dist.isend, out, partner)] if out.numel() else []
        ops += [dist.P2POp(dist.irecv, into, partner)] if into.numel() else []
        for work in dist.batch_isend_irecv(ops) if ops else []:
            work.wait()

    mine = tensor.view(-1)
    done = []
    d = n // 2
    while d:
        middle = {middle}
        low, high = mine[:middle], mine[middle:]
        theirs, mine = (low, high) if rank & d else (high, low)
        incoming = torch.empty_like(mine)
        swap(rank ^ d, theirs, incoming)
        mine += incoming
        done.append((rank ^ d, theirs, mine))
        d //= 2
"""
    if back:
        text += """
    for partner, theirs, kept in reversed(done):
        swap(partner, kept, theirs)
"""
    return text + after


wrong("halving_doubling", "no error for 3 ranks", "no error", _halving(check=""))
wrong("halving_doubling", "no way back", "no all-gather", _halving(back=False))
wrong(
    "halving_doubling",
    "the whole tensor to each partner",
    "whole tensor to each partner",
    """
def halving_doubling_all_reduce(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    if n & (n - 1):
        raise ValueError("no power of two")
    d = 1
    while d < n:
        incoming = torch.empty_like(tensor)
        ops = [dist.P2POp(dist.isend, tensor, rank ^ d), dist.P2POp(dist.irecv, incoming, rank ^ d)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        tensor += incoming
        d *= 2
""",
)
wrong(
    "halving_doubling",
    "halves taken for equal",
    "halves of different sizes",
    _halving().replace("incoming = torch.empty_like(mine)", "incoming = torch.empty_like(theirs)"),
)
wrong(
    "halving_doubling",
    "calls the library",
    "calls the library",
    """
def halving_doubling_all_reduce(tensor):
    n = dist.get_world_size()
    if n & (n - 1):
        raise ValueError("no power of two")
    dist.all_reduce(tensor)
""",
)
wrong("halving_doubling", "the mean", "mean instead of sum", _halving(after="    tensor /= n\n"))

# ---- all_to_all


def _exchange(
    out: str = "inputs[i]",
    into: str = "outputs[i]",
    own: str = "outputs[rank].copy_(inputs[rank])",
    peer: str = "group=group, group_peer=i",
    skip: str = "i == rank",
) -> str:
    return f"""
def all_to_all(outputs, inputs, group=None):
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    {own}
    ops = []
    for i in range(n):
        if {skip}:
            continue
        if inputs[i].numel():
            ops.append(dist.P2POp(dist.isend, {out}, {peer}))
        if outputs[i].numel():
            ops.append(dist.P2POp(dist.irecv, {into}, {peer}))
    for work in dist.batch_isend_irecv(ops) if ops else []:
        work.wait()
"""


wrong(
    "all_to_all",
    "calls the library",
    "calls the library",
    """
def all_to_all(outputs, inputs, group=None):
    dist.all_gather_object([None] * dist.get_world_size(group), [x.tolist() for x in inputs], group=group)
    dist.all_to_all(outputs, inputs, group=group)
""",
)
wrong("all_to_all", "own piece forgotten", "own piece forgotten", _exchange(own="pass"))
wrong(
    "all_to_all",
    "outputs are replaced in the list",
    "nothing arrives",
    """
def all_to_all(outputs, inputs, group=None):
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    mine = list(outputs)
    for i in range(n):
        mine[i] = torch.empty_like(outputs[i])
    ops = []
    for i in range(n):
        if i != rank:
            ops.append(dist.P2POp(dist.isend, inputs[i], group=group, group_peer=i))
            ops.append(dist.P2POp(dist.irecv, mine[i], group=group, group_peer=i))
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    mine[rank] = inputs[rank]
    outputs[rank].copy_(inputs[rank])
""",
)
wrong(
    "all_to_all",
    "copies its own inputs",
    "own inputs copied",
    """
def all_to_all(outputs, inputs, group=None):
    for output, piece in zip(outputs, inputs):
        output.resize_(piece.shape).copy_(piece)
""",
)
wrong(
    "all_to_all", "sends its own piece to everybody", "sends its own piece to everybody", _exchange(out="inputs[rank]")
)
wrong("all_to_all", "group ranks as global ranks", "group ranks taken for global ranks", _exchange(peer="i, group"))
wrong(
    "all_to_all",
    "blocking sends first",
    "everybody sends first",
    """
def all_to_all(outputs, inputs, group=None):
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    outputs[rank].copy_(inputs[rank])
    for i in range(n):
        if i != rank:
            dist.send(inputs[i], group=group, group_dst=i)
    for i in range(n):
        if i != rank:
            dist.recv(outputs[i], group=group, group_src=i)
""",
)

# ---- hierarchical_all_reduce

wrong(
    "hierarchical_all_reduce",
    "one ring over all ranks",
    "one ring over all ranks",
    """
def hierarchical_all_reduce(tensor, ranks_per_node):
    ring_sum(tensor)
""",
)
wrong(
    "hierarchical_all_reduce",
    "leaders only",
    "leaders only",
    """
def hierarchical_all_reduce(tensor, ranks_per_node):
    rank, n = dist.get_rank(), dist.get_world_size()
    leader = rank // ranks_per_node * ranks_per_node
    incoming = torch.empty_like(tensor)
    if rank == leader:
        for peer in range(leader + 1, leader + ranks_per_node):
            dist.recv(incoming, src=peer)
            tensor += incoming
        if rank == 0:
            for peer in range(ranks_per_node, n, ranks_per_node):
                dist.recv(incoming, src=peer)
                tensor += incoming
            for peer in range(ranks_per_node, n, ranks_per_node):
                dist.send(tensor, dst=peer)
        else:
            dist.send(tensor, dst=0)
            dist.recv(tensor, src=0)
        for peer in range(leader + 1, leader + ranks_per_node):
            dist.send(tensor, dst=peer)
    else:
        dist.send(tensor, dst=leader)
        dist.recv(tensor, src=leader)
""",
)
wrong(
    "hierarchical_all_reduce",
    "the nodes never talk",
    "the nodes never talk",
    """
def hierarchical_all_reduce(tensor, ranks_per_node):
    rank = dist.get_rank()
    first = rank // ranks_per_node * ranks_per_node
    flat = tensor.view(-1)
    chunks = [flat[a:b] for a, b in chunk_bounds(flat.numel(), ranks_per_node)]
    plan = [
        r if isinstance(r, Reduce) else replace(r, peer=r.peer + first)
        for r in ring_plan(rank - first, ranks_per_node)
    ]
    run_plan(plan, chunks)
""",
)
wrong(
    "hierarchical_all_reduce",
    "calls the library",
    "calls the library",
    """
def hierarchical_all_reduce(tensor, ranks_per_node):
    dist.all_reduce(tensor)
""",
)
wrong(
    "hierarchical_all_reduce",
    "the whole tensor between the nodes",
    "whole tensor between the nodes",
    """
def hierarchical_all_reduce(tensor, ranks_per_node):
    rank, n = dist.get_rank(), dist.get_world_size()
    node, local = divmod(rank, ranks_per_node)

    def ring(ranks, place):
        flat = tensor.view(-1)
        chunks = [flat[a:b] for a, b in chunk_bounds(flat.numel(), len(ranks))]
        plan = [r if isinstance(r, Reduce) else replace(r, peer=ranks[r.peer]) for r in ring_plan(place, len(ranks))]
        run_plan(plan, chunks)

    ring(range(node * ranks_per_node, (node + 1) * ranks_per_node), local)
    ring(range(local, n, ranks_per_node), node)
""",
)
wrong(
    "hierarchical_all_reduce",
    "no ValueError where nodes do not divide the world",
    "no error",
    """
_right = hierarchical_all_reduce

def hierarchical_all_reduce(tensor, ranks_per_node):
    if dist.get_world_size() % ranks_per_node == 0:
        _right(tensor, ranks_per_node)
""",
)
wrong(
    "hierarchical_all_reduce",
    "peers are not translated",
    "peers not translated",
    """
def hierarchical_all_reduce(tensor, ranks_per_node):
    rank, n = dist.get_rank(), dist.get_world_size()
    if n % ranks_per_node:
        raise ValueError("no whole nodes")
    node, local = divmod(rank, ranks_per_node)
    chunks = [tensor.view(-1)[a:b] for a, b in chunk_bounds(tensor.numel(), ranks_per_node)]
    inside = ring_plan(local, ranks_per_node)
    run_plan([r for r in inside if r.step < ranks_per_node - 1], chunks)
    mine = chunks[(local + 1) % ranks_per_node]
    nodes = n // ranks_per_node
    run_plan(ring_plan(node, nodes), [mine[a:b] for a, b in chunk_bounds(mine.numel(), nodes)])
    run_plan([r for r in inside if r.step >= ranks_per_node - 1], chunks)
""",
)
wrong(
    "all_to_all",
    "binds its own piece to the list",
    "puts another tensor into the list",
    """
_right_exchange = all_to_all

def all_to_all(outputs, inputs, group=None):
    rank = dist.get_rank(group)
    _right_exchange(outputs, inputs, group)
    outputs[rank] = inputs[rank]
""",
)
wrong(
    "tree_all_reduce",
    "the way down in the order of the way up",
    "down in the order of the way up",
    """
def tree_all_reduce(tensor, group=None):
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    distances = [2**k for k in range((n - 1).bit_length())]
    incoming = torch.empty_like(tensor)
    for d in distances:
        if rank % (2 * d) == d:
            dist.send(tensor, group_dst=rank - d, group=group)
        elif rank % (2 * d) == 0 and rank + d < n:
            dist.recv(incoming, group_src=rank + d, group=group)
            tensor += incoming
    for d in distances:
        if rank % (2 * d) == d:
            dist.recv(tensor, group_src=rank - d, group=group)
        elif rank % (2 * d) == 0 and rank + d < n:
            dist.send(tensor, group_dst=rank + d, group=group)
""",
)
wrong(
    "halving_doubling",
    "both partners keep the lower half",
    "both keep the same half",
    """
def halving_doubling_all_reduce(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    if n & (n - 1):
        raise ValueError("no power of two")
    mine, d = tensor.view(-1), n // 2
    while d:
        mine, theirs = mine[: mine.numel() // 2], mine[mine.numel() // 2 :]
        incoming = torch.empty_like(mine)
        for w in dist.batch_isend_irecv([
            dist.P2POp(dist.isend, theirs, rank ^ d), dist.P2POp(dist.irecv, incoming, rank ^ d)
        ]):
            w.wait()
        mine += incoming
        d //= 2
""",
)
