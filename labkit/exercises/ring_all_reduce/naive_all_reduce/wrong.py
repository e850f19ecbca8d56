"""Wrong answers to naive_all_reduce, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
wrong = WRONG.wrong


wrong(
    "calls dist.all_reduce",
    "calls the library",
    """
def naive_all_reduce(tensor):
    dist.all_reduce(tensor)
""",
)
wrong(
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
WRONG.changed(
    "receives into float32 whatever is sent",
    "buffer of another type",
    ("torch.empty_like(tensor)", "torch.empty(tensor.shape)"),
)
WRONG.changed(
    "the others never receive the total",
    "nobody receives the total",
    ("        dist.recv(tensor, src=0)\n", ""),
)
WRONG.changed(
    "rank 0 binds the total to a new name",
    "rank 0 binds the total to a new name",
    ("tensor += incoming", "tensor = tensor + incoming"),
)
wrong(
    "answers each rank at once",
    "the total is sent too early",
    """
def naive_all_reduce(tensor):
    if dist.get_rank() == 0:
        incoming = torch.empty_like(tensor)
        for peer in range(1, dist.get_world_size()):
            dist.recv(incoming, src=peer)
            tensor += incoming
            dist.send(tensor, dst=peer)
    else:
        dist.send(tensor, dst=0)
        dist.recv(tensor, src=0)
""",
)
WRONG.changed("everybody receives", "everybody receives first",
              ("        dist.send(tensor, dst=0)\n        dist.recv(tensor, src=0)\n", "        dist.recv(tensor, src=0)\n        dist.send(tensor, dst=0)\n"))  # fmt: skip  # noqa: E501
WRONG.changed("rank 0 begins with twice its own", "a contribution added twice",
              ("        incoming = torch.empty_like(tensor)\n", "        incoming = torch.empty_like(tensor)\n        tensor += tensor\n"))  # fmt: skip  # noqa: E501
wrong(
    "a chain",
    "does not pass through rank 0",
    """
def naive_all_reduce(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    incoming = torch.empty_like(tensor)
    if rank < n - 1:
        dist.recv(incoming, src=rank + 1)
        tensor += incoming
    if rank > 0:
        dist.send(tensor, dst=rank - 1)
        dist.recv(tensor, src=rank - 1)
    if rank < n - 1:
        dist.send(tensor, dst=rank + 1)
""",
)
WRONG.changed("four ranks", "a peer that is not there", ("dist.get_world_size()", "4"))
wrong(
    "one buffer for all",
    "buffer reused in flight",
    """
def naive_all_reduce(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    incoming = torch.empty_like(tensor)
    if rank == 0:
        works = []
        for peer in range(1, n):
            dist.recv(incoming, src=peer)
            tensor += incoming
            works.append(dist.isend(tensor, dst=peer))
        for work in works:
            work.wait()
        for peer in range(1, n):
            dist.send(tensor, dst=peer)
    else:
        dist.send(tensor, dst=0)
        dist.recv(tensor, src=0)
        dist.recv(tensor, src=0)
""",
)
WRONG.changed(
    "rank 0 listens to all but the last",
    "somebody is not heard",
    (
        "for peer in range(1, world_size):\n            dist.recv",
        "for peer in range(1, world_size - 1):\n            dist.recv",
    ),
)
WRONG.changed("one rank too many", "a peer that is not there", ("range(1, world_size)", "range(1, world_size + 1)"))
WRONG.changed(
    "takes itself for the only one", "nobody sent anything", ("dist.get_rank(), dist.get_world_size()", "0, 1")
)
