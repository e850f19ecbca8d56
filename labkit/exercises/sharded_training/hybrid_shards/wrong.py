"""Wrong answers to hybrid_shards, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed

ACROSS = "        dist.all_reduce(mine, group=across)\n"
COUNT = "dist.get_world_size(node) * dist.get_world_size(across)"
BEGIN = "    work = REDUCE_SCATTER(mine, rows.view(-1), group=node, async_op=True)\n"
GATHER = "    work = ALL_GATHER(everyones.view(-1), mine, group=node, async_op=True)\n"
MINE = "node_rows_of(tensor, node)[dist.get_rank(node)].clone()"

changed(
    "cuts for all ranks", "shards of all ranks",
    (MINE, "node_rows_of(tensor, dist.group.WORLD)[dist.get_rank()].clone()"),
)  # fmt: skip
changed(
    "takes neighbours for a node", "place in the world",
    (MINE, "node_rows_of(tensor, node)[dist.get_rank() % dist.get_world_size(node)].clone()"),
)  # fmt: skip
changed("stays in the node", "own node's mean", (ACROSS, ""))
changed("stays in the node, its own mean", "own node's mean", (ACROSS, ""), (COUNT, "dist.get_world_size(node)"))
changed("divides by the node", "sum instead of mean", (COUNT, "dist.get_world_size(node)"))
changed("adds up", "sum instead of mean", (f"(mine / ({COUNT}))", "mine"))
changed("gathers shards that are not cast", "not cast before the gather",
        ("shard.detach().to(tensors[0].dtype)", "shard.detach()"),
        ("everyones = mine.new_empty", "everyones = tensors[0].new_empty"))  # fmt: skip
changed("adds up over everybody", "summed over everybody", (ACROSS, "        dist.all_reduce(mine)\n"))
changed(
    "the columns mixed up", "put together wrongly",
    ("everyones.split(sizes, 1)", "everyones.flip(0).split(sizes, 1)"),
)  # fmt: skip
changed(
    "sends whole gradients", "whole gradients across",
    (BEGIN, "    work = dist.all_reduce(rows, async_op=True)\n"),
    (ACROSS, "        mine.copy_(rows[dist.get_rank(node)])\n"),
)  # fmt: skip
changed(
    "begins in finish", "begins in finish",
    (BEGIN, ""),
    ("        work.wait()\n" + ACROSS, "        REDUCE_SCATTER(mine, rows.view(-1), group=node)\n" + ACROSS),
)  # fmt: skip
changed(
    "waits at once", "waits at once",
    (GATHER, "    ALL_GATHER(everyones.view(-1), mine, group=node)\n"),
    ("        work.wait()\n        for column", "        for column"),
)  # fmt: skip
changed(
    "one collective each", "one collective each",
    (ACROSS, "        [dist.all_reduce(each, group=across) for each in mine.split(sizes)]\n"),
)  # fmt: skip
changed("a rank of the world", "place in the world", (MINE, MINE.replace("get_rank(node)", "get_rank()")))
changed(
    "whole gradients first", "whole gradients across",
    (BEGIN, "    dist.all_reduce(rows, group=across)\n" + BEGIN),
    (ACROSS, ""),
)  # fmt: skip
changed(
    "a view", "shares memory",
    (MINE, "tensor.detach().reshape(dist.get_world_size(node), -1)[dist.get_rank(node)]"),
)  # fmt: skip
changed("never waits", "never waits", ("        work.wait()\n        for column", "        for column"))
changed(
    "gathers from the first ranks there are", "not inside the node",
    (GATHER, "    everybody = mine.new_empty(dist.get_world_size() * len(mine))\n"
     "    work = ALL_GATHER(everybody, mine, async_op=True)\n"),
    ("        for column", "        everyones.view(-1).copy_(everybody[: everyones.numel()])\n        for column"),
)  # fmt: skip
changed(
    "writes where autograd looks", "autograd sees it",
    ("            tensor.data.copy_(", "            with torch.no_grad():\n                tensor.copy_("),
)  # fmt: skip
changed("writes into a leaf", "autograd sees it", ("tensor.data.copy_(", "tensor.copy_("))
changed(
    "gathers what the shards are", "wider than the tensors",
    ("shard.detach().to(tensors[0].dtype)", "shard.detach()"),
)  # fmt: skip
changed(
    "one gather for each tensor", "one collective each",
    ("    sizes = [len(shard) for shard in shards]\n    mine",
     "    if len(shards) > 1:\n"
     "        ends = [start_node_gather([shard], [tensor], node) for shard, tensor in zip(shards, tensors)]\n"
     "        return lambda: [end() for end in ends]\n"
     "    sizes = [len(shard) for shard in shards]\n    mine"),
)  # fmt: skip
changed(
    "across before it returns", "waits at once",
    ("    sizes = [-(-tensor", "    work.wait()\n    work = dist.all_reduce(mine, group=across, async_op=True)\n"
     "    sizes = [-(-tensor"),
    (ACROSS, ""),
)  # fmt: skip
changed(
    "adds up inside the node once more", "summed over everybody",
    ("group=across)", "group=node)"),
)  # fmt: skip
WRONG.right(
    "slices, divided before they leave",
    """def node_shard_of(tensor, node):
    rank, size = dist.get_rank(node), dist.get_world_size(node)
    flat = tensor.detach().flatten()
    length = (flat.numel() + size - 1) // size
    mine = flat.new_zeros(length)
    piece = flat[rank * length : (rank + 1) * length]
    mine[: piece.numel()] = piece
    return mine


def start_node_gather(shards, tensors, node):
    mine = torch.cat([each.detach() for each in shards]).to(tensors[0].dtype)
    parts = [torch.empty_like(mine) for _ in range(dist.get_world_size(node))]
    work = dist.all_gather(parts, mine, group=node, async_op=True)

    def finish():
        work.wait()
        at = 0
        for shard, tensor in zip(shards, tensors):
            whole = torch.cat([part[at : at + len(shard)] for part in parts])
            tensor.data.view(-1).copy_(whole[: tensor.numel()])
            at += len(shard)

    return finish


def start_hybrid_scatter(tensors, node, across):
    size, count = dist.get_world_size(node), dist.get_world_size(node) * dist.get_world_size(across)
    tables = []
    for tensor in tensors:
        length = -(-tensor.numel() // size)
        table = tensor.new_zeros(size * length)
        table[: tensor.numel()] = tensor.detach().flatten() / count
        tables.append(table.view(size, length))
    out = [torch.cat([table[rank] for table in tables]) for rank in range(size)]
    mine = torch.empty_like(out[0])
    work = dist.reduce_scatter(mine, out, group=node, async_op=True)

    def finish():
        work.wait()
        dist.all_reduce(mine, group=across)
        return [each.clone() for each in mine.split([table.shape[1] for table in tables])]

    return finish
""",
)
PLACE = "node_rows_of(tensor, node)[dist.get_rank(node)]"
changed(
    "its number by the number of nodes",
    "place in the world",
    (PLACE, "node_rows_of(tensor, node)[dist.get_rank() // (dist.get_world_size() // dist.get_world_size(node))]"),
)
changed(
    "across before the wait",
    "across in vain",
    (
        "        work.wait()\n        dist.all_reduce(mine, group=across)\n",
        "        again = dist.all_reduce(mine, group=across, async_op=True)\n"
        "        work.wait()\n        again.wait()\n",
    ),
)
changed(
    "new tensors gathered",
    "other memory",
    ("tensor.data.copy_(column.reshape(-1)[: tensor.numel()].view(tensor.shape))",
     "tensor.data = column.reshape(-1)[: tensor.numel()].view(tensor.shape)"),
)  # fmt: skip
changed(
    "rows for all ranks",
    "shards of all ranks",
    ("flat, count = tensor.detach().reshape(-1), dist.get_world_size(node)",
     "flat, count = tensor.detach().reshape(-1), dist.get_world_size()"),
)  # fmt: skip
changed(
    "pads the list",
    "the list cut, not each tensor",
    ("torch.cat([node_rows_of(tensor, node) for tensor in tensors], 1)",
     "node_rows_of(torch.cat([tensor.detach().reshape(-1) for tensor in tensors]), node)"),
)  # fmt: skip
changed(
    "scatters across",
    "groups swapped",
    (
        "work = REDUCE_SCATTER(mine, rows.view(-1), group=node",
        "work = REDUCE_SCATTER(mine, rows.view(-1), group=across",
    ),
    ("dist.all_reduce(mine, group=across)", "dist.all_reduce(mine, group=node)"),
)
