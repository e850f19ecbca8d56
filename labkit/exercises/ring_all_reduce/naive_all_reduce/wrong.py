"""Wrong answers to naive_all_reduce, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
whole = WRONG.within("""
def naive_all_reduce(tensor):
    ...
""")
wrong, changed = WRONG.wrong, WRONG.changed

ADD = "            dist.recv(incoming, src=peer)\n            tensor += incoming\n"
SEND = "            dist.send(tensor, dst=peer)\n"
SEND_BACK = f"        for peer in range(1, world_size):\n{SEND}"
THEN_RECEIVE = "        dist.recv(tensor, src=0)\n"

whole("calls dist.all_reduce", "calls the library", "dist.all_reduce(tensor)")
whole(
    "everybody sends to everybody",
    "everything to everyone",
    """
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
changed("the total is not sent back", "only rank 0 has the sum", (SEND_BACK, ""), (THEN_RECEIVE, ""))
changed(
    "rank 0 receives into its own tensor",
    "rank 0 overwrites its own part",
    ("incoming = torch.empty_like(tensor)", "total = torch.zeros_like(tensor)"),
    (ADD, ADD.replace("incoming", "tensor").replace("tensor +=", "total +=")),
    (SEND_BACK, f"        tensor.copy_(total)\n{SEND_BACK}"),
)
whole(
    "a new tensor instead of in place",
    "not in place",
    """
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
changed("the mean instead of the sum", "mean instead of sum", (SEND_BACK, f"        tensor /= world_size\n{SEND_BACK}"))
changed("rank 0 sends before it receives", "everybody sends first", (SEND_BACK, ""), (ADD, f"{SEND}{ADD}"))
whole(
    "two ranks are written into the code",
    "only one rank is added",
    """
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
changed(
    "receives into float32 whatever is sent",
    "buffer of another type",
    ("torch.empty_like(tensor)", "torch.empty(tensor.shape)"),
)
changed(
    "the others never receive the total",
    "nobody receives the total",
    (THEN_RECEIVE, ""),
)
changed(
    "rank 0 binds the total to a new name",
    "rank 0 binds the total to a new name",
    ("tensor += incoming", "tensor = tensor + incoming"),
)
changed("answers each rank at once", "the total is sent too early", (SEND_BACK, ""), (ADD, f"{ADD}{SEND}"))
changed("everybody receives", "everybody receives first",
              ("        dist.send(tensor, dst=0)\n        dist.recv(tensor, src=0)\n", "        dist.recv(tensor, src=0)\n        dist.send(tensor, dst=0)\n"))  # fmt: skip  # noqa: E501
changed("rank 0 begins with twice its own", "a contribution added twice",
              ("        incoming = torch.empty_like(tensor)\n", "        incoming = torch.empty_like(tensor)\n        tensor += tensor\n"))  # fmt: skip  # noqa: E501
whole(
    "a chain",
    "does not pass through rank 0",
    """
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
changed("four ranks", "a peer that is not there", ("dist.get_world_size()", "4"))
whole(
    "one buffer for all",
    "buffer reused in flight",
    """
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
changed(
    "rank 0 listens to all but the last",
    "somebody is not heard",
    (
        "for peer in range(1, world_size):\n            dist.recv",
        "for peer in range(1, world_size - 1):\n            dist.recv",
    ),
)
changed("one rank too many", "a peer that is not there", ("range(1, world_size)", "range(1, world_size + 1)"))
changed("takes itself for the only one", "nobody sent anything", ("dist.get_rank(), dist.get_world_size()", "0, 1"))
WRONG.changed("multiplies", "another operation", ("tensor += incoming", "tensor *= incoming"))
changed("takes what arrives", "rank 0 hands on one rank's numbers", ("tensor += incoming", "tensor = incoming"))
WRONG.changed(
    "the total is added to one's own",
    "the total is added to one's own",
    (
        "        dist.recv(tensor, src=0)",
        "        total = torch.empty_like(tensor)\n        dist.recv(total, src=0)\n        tensor += total",
    ),
)
WRONG.changed(
    "through the last rank",
    "does not pass through rank 0",
    ("rank == 0", "rank == world_size - 1"),
    ("range(1, world_size)", "range(world_size - 1)"),
    ("dst=0", "dst=world_size - 1"),
    ("src=0", "src=world_size - 1"),
)
WRONG.changed(
    "sends the mean back",
    "the others get the mean",
    ("            dist.send(tensor, dst=peer)", "            dist.send(tensor / world_size, dst=peer)"),
)

ROOT = """
def naive_all_reduce(tensor):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        total, incoming = tensor, torch.empty_like(tensor)
        for peer in range(1, world_size):
            dist.recv(incoming, src=peer)
            total += incoming
        for peer in range(1, world_size):
            dist.send(total, dst=peer)
    else:
        dist.send(tensor, dst=0)
        dist.recv(tensor, src=0)
"""
root = WRONG.changing(ROOT)
root(
    "receives into its own tensor",
    "rank 0 receives into its own tensor",
    ("total, incoming = tensor, torch.empty_like(tensor)", "total, incoming = tensor.clone(), tensor"),
)
root(
    "receives with irecv and does not wait",
    "message not waited for",
    ("dist.recv(incoming", "dist.irecv(incoming"),
    ("dist.recv(tensor", "dist.irecv(tensor"),
)
root(
    "sends with isend and does not wait",
    "send not waited for",
    ("dist.send(total", "dist.isend(total"),
    ("dist.send(tensor", "dist.isend(tensor"),
)
root(
    "adds up with sum",
    "sums of another type",
    ("total += incoming", "total = torch.stack([total, incoming]).sum(0)"),
    (
        "        for peer in range(1, world_size):\n            dist.send",
        "        tensor.copy_(total)\n        for peer in range(1, world_size):\n            dist.send",
    ),
)
root(
    "adds up in float32",
    "in a narrower type",
    (
        "total, incoming = tensor, torch.empty_like(tensor)",
        "total, incoming = tensor.float(), torch.empty_like(tensor)",
    ),
    (
        "        for peer in range(1, world_size):\n            dist.send(total",
        "        tensor.copy_(total)\n        for peer in range(1, world_size):\n            dist.send(tensor",
    ),
)
