"""Wrong answers to ring_sum, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
wrong = WRONG.wrong


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
    "calls dist.all_reduce",
    "calls the library",
    """
def ring_sum(tensor, group=None):
    dist.all_reduce(tensor, group=group)
""",
)
wrong(
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
wrong("the mean instead of the sum", "mean instead of sum", _ring(after="    tensor /= n"))
wrong("the mean in whole numbers", "mean instead of sum", _ring(after="    tensor.copy_(tensor // n)"))
wrong(
    "the mean in whole numbers, towards zero",
    "mean instead of sum",
    _ring(after="    tensor.copy_(torch.div(tensor, n, rounding_mode='trunc'))"),
)
wrong("no all-gather", "no all-gather", _ring(plan="[r for r in ring_plan(rank, n) if r.step < n - 1]"))
wrong(
    "last all-gather step forgotten",
    "one step too few",
    _ring(plan="[r for r in ring_plan(rank, n) if r.step < 2 * n - 3]"),
)
wrong(
    "all-gather adds",
    "a contribution added twice",
    _ring(
        plan="[x for r in ring_plan(rank, n) for x in ([r, Reduce(r.step, r.chunk)] if isinstance(r, Recv) "
        "and r.step >= n - 1 else [r])]"
    ),
)
wrong("remainder left out", "remainder dropped", _ring(before="    flat = flat[: flat.numel() // n * n]"))
wrong("a copy is reduced", "not in place", _ring(before="    flat = flat.clone()"))
wrong(
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
    "nobody waits",
    "message not waited for",
    """
def ring_sum(tensor, group=None):
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    flat = tensor.view(-1)
    chunks = [flat[a:b] for a, b in chunk_bounds(flat.numel(), n)]
    for s in range(2 * n - 2):
        gathers = s // max(n - 1, 1)
        out, into = chunks[(rank - s) % n], chunks[(rank - s - 1) % n]
        incoming = torch.empty_like(into)
        send = dist.P2POp(dist.isend, out.clone(), group=group, group_peer=(rank + 1) % n)
        dist.batch_isend_irecv([send, dist.P2POp(dist.irecv, incoming, group=group, group_peer=(rank - 1) % n)])
        into.copy_(incoming if gathers else into + incoming)
""",
)
wrong(
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

wrong(
    "receives into float32 whatever is sent",
    "buffer of another type",
    """
def ring_sum(tensor, group=None):
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    flat = tensor.view(-1)
    chunks = [flat[a:b] for a, b in chunk_bounds(flat.numel(), n)]
    for s in range(2 * n - 2):
        out = chunks[(rank - s) % n] if s < n - 1 else chunks[(rank + 1 - (s - n + 1)) % n]
        into = chunks[(rank - s - 1) % n] if s < n - 1 else chunks[(rank - (s - n + 1)) % n]
        incoming = torch.empty(len(into))
        ops = [dist.P2POp(dist.isend, out, group=group, group_peer=(rank + 1) % n)] if len(out) else []
        ops += [dist.P2POp(dist.irecv, incoming, group=group, group_peer=(rank - 1) % n)] if len(into) else []
        for work in dist.batch_isend_irecv(ops) if ops else []:
            work.wait()
        into.copy_(into + incoming if s < n - 1 else incoming)
""",
)
wrong(
    "everybody to everybody",
    "everything to everyone",
    """
def ring_sum(tensor, group=None):
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    mine, others = tensor.clone(), [peer for peer in range(n) if peer != rank]
    buffers = [torch.empty_like(tensor) for _ in others]
    ops = [dist.P2POp(dist.isend, mine, group=group, group_peer=peer) for peer in others]
    ops += [dist.P2POp(dist.irecv, buffer, group=group, group_peer=peer) for buffer, peer in zip(buffers, others)]
    for work in dist.batch_isend_irecv(ops) if ops else []:
        work.wait()
    for buffer in buffers:
        tensor += buffer
""",
)
wrong(
    "receives before it sends",
    "everybody receives first",
    """
def ring_sum(tensor, group=None):
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    incoming = torch.empty_like(tensor)
    dist.recv(incoming, group=group, group_src=(rank - 1) % n)
    dist.send(tensor, group=group, group_dst=(rank + 1) % n)
""",
)
wrong(
    "the first step is skipped",
    "contributions missing",
    """
def ring_sum(tensor, group=None):
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    flat = tensor.view(-1)
    chunks = [flat[a:b] for a, b in chunk_bounds(flat.numel(), n)]
    run_plan([record for record in ring_plan(rank, n) if record.step], chunks, group)
""",
)
WRONG.changed(
    "nothing runs the plan", "nobody sent anything", ("run_plan(ring_plan(rank, world_size), chunks, group)", "pass")
)
WRONG.changed("chunks begin at 0", "more than a chunk at a time", ("flat[start:end]", "flat[:end]"))
WRONG.changed(
    "chunks that do not reach the end",
    "elements in no chunk",
    ("chunk_bounds(flat.numel(), world_size)", "chunk_bounds(world_size, flat.numel())"),
)
