"""Wrong answers to halving_doubling, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
whole = WRONG.within("""
def halving_doubling_all_reduce(tensor):
    ...
""")
wrong = WRONG.wrong


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


wrong("no error for 3 ranks", "no error", _halving(check=""))
wrong("no way back", "no all-gather", _halving(back=False))
whole(
    "the whole tensor to each partner",
    "whole tensor to each partner",
    """
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
    "halves taken for equal",
    "halves of different sizes",
    _halving().replace("incoming = torch.empty_like(mine)", "incoming = torch.empty_like(theirs)"),
)
whole(
    "calls the library",
    "calls the library",
    """
n = dist.get_world_size()
if n & (n - 1):
    raise ValueError("no power of two")
dist.all_reduce(tensor)
""",
)
wrong("the mean", "mean instead of sum", _halving(after="    tensor /= n\n"))

whole(
    "both partners keep the lower half",
    "halves that do not fit",
    """
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

WRONG.changed(
    "receives into float32 whatever is sent",
    "buffer of another type",
    ("torch.empty_like(mine)", "torch.empty(mine.numel())"),
)
_WORKS = """        ops = [dist.P2POp(dist.isend, out, partner)] if out.numel() else []
        ops += [dist.P2POp(dist.irecv, into, partner)] if into.numel() else []
        for work in dist.batch_isend_irecv(ops) if ops else []:
            work.wait()
"""
_SEND, _RECV = "        dist.send(out, partner)\n", "        dist.recv(into, partner)\n"
wrong("partners send to each other", "everybody sends first", _halving().replace(_WORKS, _SEND + _RECV))
wrong("partners wait for each other", "everybody receives first", _halving().replace(_WORKS, _RECV + _SEND))
wrong("works on a copy", "not in place", _halving().replace("mine = tensor.view(-1)", "mine = tensor.view(-1).clone()"))
wrong("the way back adds", "a contribution added twice", _halving().replace(
    "        swap(partner, kept, theirs)\n",
    "        incoming = torch.empty_like(theirs)\n        swap(partner, kept, incoming)\n        theirs += incoming\n"))  # fmt: skip  # noqa: E501
wrong("back in the same order", "back in the order of the way there", _halving().replace("reversed(done)", "done"))
wrong("the last distance is left out", "contributions missing", _halving().replace("    while d:", "    while d > 1:"))
_EVERYBODY = """
def halving_doubling_all_reduce(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    if n & (n - 1):
        raise ValueError("no power of two")
    mine, others = tensor.clone(), [peer for peer in range(n) if peer != rank]
    buffers = [torch.empty_like(tensor) for _ in others]
    ops = [dist.P2POp(dist.isend, mine, peer) for peer in others]
    ops += [dist.P2POp(dist.irecv, buffer, peer) for buffer, peer in zip(buffers, others)]
    for work in dist.batch_isend_irecv(ops) if ops else []:
        work.wait()
    for buffer in buffers:
        tensor += buffer
"""
wrong("everybody to everybody", "everything to everyone", _EVERYBODY)
whole(
    "through rank 0",
    "reduce to one rank",
    """
rank, n = dist.get_rank(), dist.get_world_size()
if n & (n - 1):
    raise ValueError("no power of two")
incoming = torch.empty_like(tensor)
if rank:
    dist.send(tensor, 0)
    dist.recv(tensor, 0)
    return
for peer in range(1, n):
    dist.recv(incoming, peer)
    tensor += incoming
for peer in range(1, n):
    dist.send(tensor, peer)
""",
)
WRONG.changed(
    "the condition turned round",
    "an error where none is due",
    ("if world_size & (world_size - 1):", "if world_size & 1 == 0:"),
)
WRONG.changed("no distance", "nobody sent anything", ("    while distance:", "    while distance > world_size:"))
WRONG.changed(
    "empty halves are sent",
    "an empty half is sent",
    (
        "exchange(theirs, partner, incoming, partner)",
        "for work in dist.batch_isend_irecv(\n            [dist.P2POp(dist.isend, theirs, partner), "
        "dist.P2POp(dist.irecv, incoming, partner)]\n        ):\n            work.wait()",
    ),
)
WRONG.changed(
    "asserts",
    "an error of another kind",
    (
        "    if world_size & (world_size - 1):\n        raise ValueError("
        'f"{world_size} ranks are not a power of two; use the ring.")',
        "    assert world_size & (world_size - 1) == 0",
    ),
)
WRONG.changed("an error for odd numbers alone", "no error", ("if world_size & (world_size - 1):", "if world_size % 2:"))
WRONG.changed(
    "the rank that lies at the distance",
    "partners that are no pair",
    ("partner = rank ^ distance", "partner = (rank + distance) % world_size"),
)
WRONG.right(
    "the nearest partner first",
    """
def halving_doubling_all_reduce(tensor):
    world_size, rank = dist.get_world_size(), dist.get_rank()
    if world_size & (world_size - 1):
        raise ValueError("not a power of two")
    mine, splits, distance = tensor.view(-1), [], 1
    while distance < world_size:
        partner, middle = rank ^ distance, (mine.numel() + 1) // 2
        low, high = mine[:middle], mine[middle:]
        theirs, mine = (low, high) if rank & distance else (high, low)
        incoming = torch.empty_like(mine)
        exchange(theirs, partner, incoming, partner)
        mine += incoming
        splits.append((partner, theirs, mine))
        distance *= 2
    for partner, theirs, kept in reversed(splits):
        exchange(kept, partner, theirs, partner)
""",
)
WRONG.changed(
    "the upper partner cuts after the middle element",
    "halves that do not fit",
    ("middle = mine.numel() // 2", "middle = mine.numel() // 2 + (mine.numel() % 2 if rank & distance else 0)"),
)
WRONG.changed(
    "whole tensors on the way back",
    "the whole tensor on the way back",
    (
        ("    for partner, theirs, kept in reversed(splits):\n        exchange(kept, partner, theirs, partner)"),
        (
            "    ranks = list(range(world_size))\n"
            "    for partner, theirs, kept in reversed(splits):\n"
            "        whole = tensor.view(-1).clone()\n"
            "        exchange(tensor.view(-1).clone(), partner, whole, partner)\n"
            "        tensor.view(-1).copy_(whole)"
        ),
    ),
)
WRONG.changed(
    "sends the half that it keeps",
    "halves of different sizes",
    (
        "theirs, mine = (low, high) if rank & distance else (high, low)",
        (
            "mine, theirs = (low, high) if rank & distance else (high, low)\n"
            "        theirs, mine = mine, theirs\n"
            "        theirs, mine = mine, theirs"
        ),
    ),
    (
        ("exchange(theirs, partner, incoming, partner)\n        mine"),
        ("exchange(mine, partner, incoming, partner)\n        mine"),
    ),
)
