"""Wrong answers to tree_all_reduce, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
whole = WRONG.within("""
def tree_all_reduce(tensor, group=None):
    ...
""")
wrong = WRONG.wrong


whole(
    "calls the library",
    "calls the library",
    """
dist.reduce(tensor, dst=0 if group is None else dist.get_global_rank(group, 0), group=group)
dist.broadcast(tensor, src=0 if group is None else dist.get_global_rank(group, 0), group=group)
""",
)
whole(
    "everything through rank 0",
    "everything through rank 0",
    """
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
whole(
    "a chain",
    "one after another",
    """
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


wrong("no way down", "only rank 0 has the sum", _tree(down=False))
wrong("partners that are not there", "only for powers of two", _tree(condition=""))
wrong("the mean", "mean instead of sum", _tree(more="    tensor /= n\n"))

whole(
    "three rounds written into the code",
    "too few rounds",
    """
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

whole(
    "the way down in the order of the way up",
    "down in the order of the way up",
    """
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

WRONG.changed(
    "receives into float32 whatever is sent",
    "buffer of another type",
    ("torch.empty_like(tensor)", "torch.empty(tensor.shape)"),
)
WRONG.changed(
    "the tail is left out",
    "remainder dropped",
    (
        "    distances = []\n",
        "    distances = []\n    tensor = tensor.view(-1)[: tensor.numel() // world_size * world_size]\n",
    ),
)
_SWAP = """
def tree_all_reduce(tensor, group=None):
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    incoming = torch.empty_like(tensor)
    for d in [2**k for k in range(10) if 2**k < n]:
        if rank ^ d < n:
            {first}
            {second}
            tensor += incoming
"""
_SEND, _RECV = (
    "dist.send(tensor, group_dst=rank ^ d, group=group)",
    "dist.recv(incoming, group_src=rank ^ d, group=group)",
)
wrong("partners send to each other", "everybody sends first", _SWAP.format(first=_SEND, second=_RECV))
wrong("partners wait for each other", "everybody receives first", _SWAP.format(first=_RECV, second=_SEND))
wrong(
    "adds into a copy",
    "not in place",
    _tree().replace("    distances =", "    tensor = tensor.clone()\n    distances ="),
)
wrong(
    "a place for a rank",
    "group ranks taken for global ranks",
    _tree().replace("group_dst=", "dst=").replace("group_src=", "src="),
)
whole(
    "everybody to everybody",
    "everything to everyone",
    """
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
    "the last round is not handed down",
    "contributions missing",
    _tree().replace("reversed(distances)", "reversed(distances[:-1])"),
)
WRONG.changed("what came replaces the sum", "contributions missing", ("tensor += incoming", "tensor = incoming"))
WRONG.changed("no distances", "nobody sent anything", ("(distances) < world_size", "(distances) > world_size"))
WRONG.right(
    "halves the ranks that are left",
    """
def tree_all_reduce(tensor, group=None):
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    came, distance, sent = torch.empty_like(tensor), 1, 0
    while distance < n:
        if rank & distance:
            dist.send(tensor, group_dst=rank - distance, group=group)
            sent = distance
            break
        if rank + distance < n:
            dist.recv(came, group_src=rank + distance, group=group)
            tensor.add_(came)
        distance *= 2
    if sent:
        dist.recv(tensor, group_src=rank - sent, group=group)
    distance //= 2
    while distance:
        if rank + distance < n:
            dist.send(tensor, group_dst=rank + distance, group=group)
        distance //= 2
""",
)
WRONG.changed(
    "both of a pair send",
    "more messages than in a tree",
    (
        "    incoming = torch.empty_like(tensor)\n",
        "    incoming = torch.empty_like(tensor)\n"
        "    if world_size == 2 ** len(distances):\n"
        "        for distance in distances:\n"
        "            exchange(tensor, dist.get_process_group_ranks(group)[rank ^ distance], incoming,\n"
        "                     dist.get_process_group_ranks(group)[rank ^ distance])\n"
        "            tensor += incoming\n"
        "        return\n",
    ),
)
WRONG.changed(
    "rank 0 hands the sum to each",
    "one after another",
    (
        "    for distance in reversed(distances):  # down: ..., 4, 2, 1\n"
        "        if rank % (2 * distance) == distance:\n"
        "            dist.recv(tensor, group_src=rank - distance, group=group)\n"
        "        elif rank % (2 * distance) == 0 and rank + distance < world_size:\n"
        "            dist.send(tensor, group_dst=rank + distance, group=group)",
        "    if rank:\n        dist.recv(tensor, group_src=0, group=group)\n"
        "    for other in range(1, world_size) if rank == 0 else ():\n"
        "        dist.send(tensor, group_dst=other, group=group)",
    ),
)
WRONG.changed(
    "the group is not handed on",
    "group ranks taken for global ranks",
    ("group_dst=rank", "dst=rank"),
    ("group_src=rank", "src=rank"),
)
WRONG.changed(
    "receives into the tensor and adds it to itself",
    "received over its own numbers",
    (
        ("            dist.recv(incoming, group_src=rank + distance, group=group)\n            tensor += incoming\n"),
        (
            "            incoming = tensor\n"
            "            dist.recv(tensor, group_src=rank + distance, group=group)\n"
            "            tensor += incoming\n"
        ),
    ),
)
WRONG.changed(
    "a sum under the same name", "added under a new name", ("tensor += incoming", "tensor = tensor + incoming")
)
WRONG.changed(
    "the last rank for a partner that is missing",
    "only for powers of two",
    (
        (
            "        elif rank % (2 * distance) == 0 and rank + distance < world_size:\n"
            "            dist.recv(incoming, group_src=rank + distance, group=group)"
        ),
        (
            "        elif rank % (2 * distance) == 0:\n"
            "            dist.recv(incoming, group_src=min(rank + distance, world_size - 1), group=group)"
        ),
    ),
)
