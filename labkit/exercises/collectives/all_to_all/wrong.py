"""Wrong answers to all_to_all, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
whole = WRONG.within("""
def all_to_all(outputs, inputs, group=None):
    ...
""")
wrong = WRONG.wrong


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


whole(
    "calls the library",
    "calls the library",
    """
dist.all_gather_object([None] * dist.get_world_size(group), [x.tolist() for x in inputs], group=group)
dist.all_to_all(outputs, inputs, group=group)
""",
)
wrong("own piece forgotten", "own piece forgotten", _exchange(own="pass"))
whole(
    "outputs are replaced in the list",
    "nothing arrives",
    """
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
whole(
    "copies its own inputs",
    "own inputs copied",
    """
for output, piece in zip(outputs, inputs):
    output.resize_(piece.shape).copy_(piece)
""",
)
wrong("sends its own piece to everybody", "sends its own piece to everybody", _exchange(out="inputs[rank]"))
wrong("group ranks as global ranks", "group ranks taken for global ranks", _exchange(peer="i, group"))
whole(
    "blocking sends first",
    "everybody sends first",
    """
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

wrong(
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
wrong("its own piece goes round too", "sends to itself", _exchange(own="pass", skip="False"))
whole(
    "all inputs to everybody",
    "sends too much",
    """
rank, n = dist.get_rank(group), dist.get_world_size(group)
mine, cut = torch.cat(inputs), torch.tensor([0, *(len(each) for each in inputs)]).cumsum(0)
for i in range(n):
    if i == rank:
        outputs[i].copy_(inputs[i])
        continue
    theirs, cuts = torch.empty(100, dtype=mine.dtype), torch.empty(n + 1, dtype=torch.int64)
    for out, into in ((torch.cat([mine, mine.new_zeros(100 - len(mine))]), theirs), (cut, cuts)):
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, out, group=group, group_peer=i),
                                            dist.P2POp(dist.irecv, into, group=group, group_peer=i)]):
            work.wait()
    outputs[i].copy_(theirs[cuts[rank] : cuts[rank + 1]])
""",
)
wrong("receives pieces like its own", "sizes taken for equal", _exchange(into="outputs[i].resize_(inputs[i].shape)"))
whole(
    "blocking receives first",
    "everybody receives first",
    """
rank, n = dist.get_rank(group), dist.get_world_size(group)
outputs[rank].copy_(inputs[rank])
for i in range(n):
    if i != rank:
        dist.recv(outputs[i], group=group, group_src=i)
        dist.send(inputs[i], group=group, group_dst=i)
""",
)
wrong("the pieces in reverse", "wrong order", _exchange(out="inputs[-1 - i]"))
WRONG.changed("the last one left out", "a piece never arrives", ("range(1, world_size)", "range(1, world_size - 1)"))
WRONG.changed("never waits", "not waited for", ("        work.wait()", "        pass"))
WRONG.changed("empty pieces are sent", "an empty piece is sent", ("        if inputs[to].numel():", "        if True:"))
WRONG.changed("an empty batch", "empty batch", (" if batch else []", ""))
whole(
    "leaves out a rank for which it has nothing",
    "left out both ways",
    """
rank, n = dist.get_rank(group), dist.get_world_size(group)
outputs[rank].copy_(inputs[rank])
batch = []
for i in range(n):
    if i == rank or not inputs[i].numel():
        continue
    batch.append(dist.P2POp(dist.isend, inputs[i], group=group, group_peer=i))
    if outputs[i].numel():
        batch.append(dist.P2POp(dist.irecv, outputs[i], group=group, group_peer=i))
if batch:
    for work in dist.batch_isend_irecv(batch):
        work.wait()
""",
)
WRONG.changed(
    "receives where it sends",
    "an empty piece is waited for",
    ("if outputs[source].numel():", "if inputs[source].numel():"),
)
WRONG.changed(
    "receives into float32",
    "buffer of another type",
    (
        ("            batch.append(dist.P2POp(dist.irecv, outputs[source], group=group, group_peer=source))"),
        (
            "            landing[source] = torch.empty(outputs[source].numel())\n"
            "            batch.append(dist.P2POp(dist.irecv, landing[source], group=group,"
            " group_peer=source))"
        ),
    ),
    ("    batch = []\n", "    batch, landing = [], {}\n"),
    (
        "        work.wait()\n",
        ("        work.wait()\n    for source, piece in landing.items():\n        outputs[source].copy_(piece)\n"),
    ),
)
