"""Wrong answers to hierarchical_all_reduce: mistakes that learners really make, and how a check must name them."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
whole = WRONG.within("""
def hierarchical_all_reduce(tensor, ranks_per_node):
    ...
""")
wrong = WRONG.wrong


whole("one ring over all ranks", "one ring over all ranks", "ring_sum(tensor)")
whole(
    "leaders only",
    "leaders only",
    """
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
whole(
    "the nodes never talk",
    "the nodes never talk",
    """
first = dist.get_rank() // ranks_per_node * ranks_per_node
inside = range(first, first + ranks_per_node)
chunks = tensor.view(-1).tensor_split(ranks_per_node)
reduce_scatter(chunks, inside)
all_gather(chunks, inside)
""",
)
whole("calls the library", "calls the library", "dist.all_reduce(tensor)")
whole(
    "the whole tensor between the nodes",
    "whole tensor between the nodes",
    """
rank, n = dist.get_rank(), dist.get_world_size()
node, local = divmod(rank, ranks_per_node)

def ring(ranks):
    chunks = tensor.view(-1).tensor_split(len(ranks))
    reduce_scatter(chunks, ranks)
    all_gather(chunks, ranks)

ring(range(node * ranks_per_node, (node + 1) * ranks_per_node))
ring(range(local, n, ranks_per_node))
""",
)
wrong(
    "no ValueError where nodes do not divide the world",
    "no error",
    """
_right = hierarchical_all_reduce

def hierarchical_all_reduce(tensor, ranks_per_node):
    if dist.get_world_size() % ranks_per_node == 0:
        _right(tensor, ranks_per_node)
""",
)
whole(
    "peers are not translated",
    "peers not translated",
    """
rank, n = dist.get_rank(), dist.get_world_size()
if n % ranks_per_node:
    raise ValueError("no whole nodes")
node, local = divmod(rank, ranks_per_node)
nodes = n // ranks_per_node
pieces = tensor.view(-1).tensor_split(ranks_per_node)

def halves(chunks, place, first):
    size = len(chunks)
    for step in range(2 * (size - 1)):
        out = chunks[(place - step - (step < size - 1)) % size]
        chunk = chunks[(place - step - 1 - (step < size - 1)) % size]
        landing = torch.empty_like(chunk)
        exchange(out, (place + 1) % size, landing, (place - 1) % size)
        chunk.copy_(chunk + landing if step < size - 1 else landing)

halves(pieces, local, 0)
halves(pieces[local].tensor_split(nodes), node, 0)
""",
)
whole(
    "places in the node for ranks",
    "peers not translated",
    """
rank, n = dist.get_rank(), dist.get_world_size()
if n % ranks_per_node:
    raise ValueError("no whole nodes")
local = rank % ranks_per_node
pieces = tensor.view(-1).tensor_split(ranks_per_node)
reduce_scatter(pieces, range(ranks_per_node))
between = range(local, n, ranks_per_node)
chunks = pieces[local].tensor_split(len(between))
reduce_scatter(chunks, between)
all_gather(chunks, between)
all_gather(pieces, range(ranks_per_node))
""",
)


def _nodes(
    flat: str = "tensor.view(-1)",
    cut: str = "flat.tensor_split(ranks_per_node)",
    end: str = "",
    last: str = "all_gather(pieces, inside)",
    middle: str = "all_gather(chunks, between)",
) -> str:
    return f"""
def hierarchical_all_reduce(tensor, ranks_per_node):
    rank, n = dist.get_rank(), dist.get_world_size()
    if n % ranks_per_node:
        raise ValueError("no whole nodes")
    node, local = divmod(rank, ranks_per_node)
    inside, between = range(node * ranks_per_node, (node + 1) * ranks_per_node), range(local, n, ranks_per_node)
    flat = {flat}
    pieces = {cut}
    reduce_scatter(pieces, inside)
    chunks = pieces[local].tensor_split(n // ranks_per_node)
    reduce_scatter(chunks, between)
    {middle}
    {last}
    {end}
"""


wrong("works on a copy", "not in place", _nodes(flat="tensor.clone().view(-1)"))
wrong("the mean", "mean instead of sum", _nodes(end="tensor /= n"))
wrong("nothing is gathered", "no all-gather inside the node", _nodes(last="pass"))
wrong(
    "the rest is cut off",
    "contributions missing",
    _nodes(flat="tensor.view(-1)[: tensor.numel() // ranks_per_node * ranks_per_node]"),
)
wrong("rows of equal length", "needs sizes that divide", _nodes(cut="list(flat.view(ranks_per_node, -1))"))
wrong(
    "adds on the way back",
    "a contribution added twice",
    _nodes(last="reduce_scatter(pieces, inside); all_gather(pieces, inside)"),
)
wrong("the nodes do not hand round", "no all-gather between the nodes", _nodes(middle="pass"))
WRONG.changed(
    "the condition turned round",
    "an error where none is due",
    ("if world_size % ranks_per_node:", "if world_size // ranks_per_node:"),
)
WRONG.changed(
    "only cuts",
    "nobody sent anything",
    *((each, "pass") for each in ("reduce_scatter(pieces, inside)", "reduce_scatter(chunks, between)")),
    *((each, "pass") for each in ("all_gather(chunks, between)", "all_gather(pieces, inside)")),
)
WRONG.changed(
    "neighbours in the numbers of different nodes",
    "ranks dealt out in turn",
    (
        "    node, local = divmod(rank, ranks_per_node)\n"
        "    inside = range(node * ranks_per_node, (node + 1) * ranks_per_node)\n"
        "    between = range(local, world_size, ranks_per_node)\n",
        "    nodes = world_size // ranks_per_node\n    local, node = divmod(rank, nodes)\n"
        "    inside = range(node, world_size, nodes)\n    between = range(local * nodes, (local + 1) * nodes)\n",
    ),
)
WRONG.changed(
    "returns where the nodes do not divide the world",
    "no error",
    ('raise ValueError(f"{ranks_per_node} ranks per node do not divide {world_size} ranks.")', "return"),
)
WRONG.changed(
    "more ranks in a node than in the world",
    "no error",
    ("if world_size % ranks_per_node:", "if ranks_per_node > world_size:"),
)
WRONG.changed(
    "the piece of the node's number",
    "another piece than its own",
    ("pieces[local].tensor", "pieces[node % ranks_per_node].tensor"),
)
WRONG.changed(
    "all-reduces inside first",
    "too much inside the node",
    ("    chunks = pieces[local]", ("    all_gather(pieces, inside)\n    chunks = pieces[local]")),
)
WRONG.changed(
    "both all-gathers in the wrong order",
    "handed round before it is complete",
    (
        ("    all_gather(chunks, between)\n    all_gather(pieces, inside)"),
        ("    all_gather(pieces, inside)\n    all_gather(chunks, between)"),
    ),
)
WRONG.wrong(
    "between the nodes before inside",
    "between the nodes first",
    """
def hierarchical_all_reduce(tensor: torch.Tensor, ranks_per_node: int) -> None:
    world_size, rank = dist.get_world_size(), dist.get_rank()
    if world_size % ranks_per_node:
        raise ValueError(f"{ranks_per_node} ranks per node do not divide {world_size} ranks.")
    node, local = divmod(rank, ranks_per_node)
    inside = range(node * ranks_per_node, (node + 1) * ranks_per_node)
    between = range(local, world_size, ranks_per_node)

    pieces = tensor.view(-1).tensor_split(ranks_per_node)
    chunks = pieces[local].tensor_split(len(between))
    reduce_scatter(chunks, between)
    all_gather(chunks, between)
    reduce_scatter(pieces, inside)
    all_gather(pieces, inside)
""",
)
WRONG.changed("chunk for tensor_split", "fewer chunks than ranks", (".tensor_split", ".chunk"))
