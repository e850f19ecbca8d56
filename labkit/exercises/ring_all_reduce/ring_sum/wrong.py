"""Wrong answers to ring_sum, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed
whole = WRONG.within("""
def ring_sum(tensor, group=None):
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    ...
""")
steps = WRONG.within("""
def ring_sum(tensor, group=None):
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    right, left = (rank + 1) % n, (rank - 1) % n
    flat = tensor.view(-1)
    chunks = [flat[a:b] for a, b in chunk_bounds(flat.numel(), n)]
    for s in range(2 * n - 2):
        out, into = chunks[(rank - s) % n], chunks[(rank - s - 1) % n]
        ...
""")
TAKE = "into.copy_(into + incoming if s < n - 1 else incoming)"
CHUNKS = "[flat[start:end] for start, end in chunk_bounds(flat.numel(), world_size)]"
FLAT, PLAN, RUN = (
    "tensor.view(-1)",
    "ring_plan(rank, world_size)",
    "run_plan(ring_plan(rank, world_size), chunks, group)",
)

whole("calls dist.all_reduce", "calls the library", "dist.all_reduce(tensor, group=group)")
whole(
    "calls reduce_scatter and all_gather",
    "calls the library",
    """
parts = [torch.empty_like(tensor) for _ in range(n)]
dist.all_gather(parts, tensor, group=group)
tensor.copy_(torch.stack(parts).sum(0))
""",
)
whole(
    "whole tensor round the ring",
    "whole tensor at each step",
    """
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
whole(
    "naive, through rank 0",
    "reduce to one rank",
    """
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
changed("the mean instead of the sum", "mean instead of sum", (RUN, f"{RUN}\n    tensor /= world_size"))
changed("the mean in whole numbers", "mean instead of sum", (RUN, f"{RUN}\n    tensor.copy_(tensor // world_size)"))
changed(
    "the mean in whole numbers, towards zero",
    "mean instead of sum",
    (RUN, f"{RUN}\n    tensor.copy_(torch.div(tensor, world_size, rounding_mode='trunc'))"),
)
changed("no all-gather", "no all-gather", (PLAN, f"[r for r in {PLAN} if r.step < world_size - 1]"))
changed(
    "last all-gather step forgotten",
    "one step too few",
    (PLAN, f"[r for r in {PLAN} if r.step < 2 * world_size - 3]"),
)
changed(
    "all-gather adds",
    "a contribution added twice",
    (
        PLAN,
        f"[x for r in {PLAN} for x in ([r, Reduce(r.step, r.chunk)] if isinstance(r, Recv) "
        "and r.step >= world_size - 1 else [r])]",
    ),
)
changed("remainder left out", "remainder dropped", (FLAT, f"{FLAT}[: tensor.numel() // world_size * world_size]"))
changed("a copy is reduced", "not in place", (FLAT, "tensor.clone().view(-1)"))
steps(
    "blocking sends on all ranks at once",
    "everybody sends first",
    f"""
dist.send(out, group=group, group_dst=right)
incoming = torch.empty_like(into)
dist.recv(incoming, group=group, group_src=left)
{TAKE}
""",
)
steps(
    "ranks of the world in a group",
    "group ranks taken for global ranks",
    f"""
incoming = torch.empty_like(into)
for work in dist.batch_isend_irecv([
    dist.P2POp(dist.isend, out, right, group), dist.P2POp(dist.irecv, incoming, left, group),
]):
    work.wait()
{TAKE}
""",
)
changed("world size 4 is written into the code", "a rank that is not there", ("dist.get_world_size(group)", "4"))
changed("needs a length that divides", "needs sizes that divide", (CHUNKS, "list(flat.view(world_size, -1))"))
steps(
    "nobody waits",
    "message not waited for",
    f"""
incoming = torch.empty_like(into)
send = dist.P2POp(dist.isend, out.clone(), group=group, group_peer=right)
dist.batch_isend_irecv([send, dist.P2POp(dist.irecv, incoming, group=group, group_peer=left)])
{TAKE}
""",
)
steps(
    "a buffer is filled again while its isend is in flight",
    "buffer reused in flight",
    f"""
if s == 0:
    outbox, pending = torch.empty_like(max(chunks, key=len)), []
outbox[: len(out)].copy_(out)
if len(out):
    pending.append(dist.isend(outbox[: len(out)], group=group, group_dst=right))
incoming = torch.empty_like(into)
if len(into):
    dist.recv(incoming, group=group, group_src=left)
{TAKE}
for work in pending if s == 2 * n - 3 else []:
    work.wait()
""",
)
steps(
    "one rank after the other sends",
    "one after another",
    f"""
incoming = torch.empty_like(into)
if rank == 0 and out.numel():
    dist.send(out, group_dst=right, group=group)
if into.numel():
    dist.recv(incoming, group_src=left, group=group)
if rank > 0 and out.numel():
    dist.send(out, group_dst=right, group=group)
{TAKE}
""",
)
steps(
    "receives into float32 whatever is sent",
    "buffer of another type",
    f"""
incoming = torch.empty(len(into))
ops = [dist.P2POp(dist.isend, out, group=group, group_peer=right)] if len(out) else []
ops += [dist.P2POp(dist.irecv, incoming, group=group, group_peer=left)] if len(into) else []
for work in dist.batch_isend_irecv(ops) if ops else []:
    work.wait()
{TAKE}
""",
)
whole(
    "everybody to everybody",
    "everything to everyone",
    """
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
whole(
    "receives before it sends",
    "everybody receives first",
    """
incoming = torch.empty_like(tensor)
dist.recv(incoming, group=group, group_src=(rank - 1) % n)
dist.send(tensor, group=group, group_dst=(rank + 1) % n)
""",
)
changed("the first step is skipped", "contributions missing", (PLAN, f"[r for r in {PLAN} if r.step]"))
changed("nothing runs the plan", "nobody sent anything", (RUN, "pass"))
changed("chunks begin at 0", "more than a chunk at a time", ("flat[start:end]", "flat[:end]"))
changed(
    "chunks that do not reach the end",
    "elements in no chunk",
    ("chunk_bounds(flat.numel(), world_size)", "chunk_bounds(world_size, flat.numel())"),
)
WRONG.changed(
    "cuts the first dimension",
    "cut by rows",
    ("flat = tensor.view(-1)", "flat = tensor"),
    ("chunk_bounds(flat.numel(), world_size)", "chunk_bounds(len(flat), world_size)"),
)
WRONG.changed(
    "as torch.chunk cuts",
    "fewer chunks than ranks",
    (
        "[flat[start:end] for start, end in chunk_bounds(flat.numel(), world_size)]",
        "list(flat.chunk(world_size))",
    ),
)
WRONG.changed(
    "nothing for short tensors",
    "short tensors left alone",
    (
        "    flat = tensor.view(-1)\n",
        "    flat = tensor.view(-1)\n    if flat.numel() < world_size:\n        return\n",
    ),
)
WRONG.changed("the largest of each", "another operation", ("chunks, group)", "chunks, group, torch.maximum)"))
WRONG.changed("the group is not handed on", "group ranks taken for global ranks", ("chunks, group)", "chunks)"))
WRONG.changed(
    "pads a copy",
    "not in place",
    (
        "    flat = tensor.view(-1)\n",
        "    flat = torch.nn.functional.pad(tensor.view(-1), (0, -tensor.numel() % world_size))\n",
    ),
)
WRONG.changed(
    "rank 0's plan for all",
    "another rank's plan",
    ("ring_plan(rank, world_size)", "ring_plan(0, world_size)"),
)
WRONG.changed(
    "adds up in float32",
    "in a narrower type",
    ("flat = tensor.view(-1)", "flat = tensor.view(-1).float()"),
    ("chunks, group)", "chunks, group)\n    tensor.view(-1).copy_(flat)"),
)
WRONG.changed(
    "cuts without making it flat",
    "whole tensor at each step",
    ("flat = tensor.view(-1)", "flat = tensor"),
)
